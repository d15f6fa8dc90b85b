"""X.509 certificates, read as far as `remesh check` speaks of them: who issued them, for which names, until when. Pure.

The standard library verifies certificates and yet does not show one that it does not trust, so the few fields are read
here from DER (RFC 5280, section 4.1; X.690 for the encoding). Nothing is trusted on the word of this module: whether a
certificate is right is for TLS to say.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_OID_COMMON_NAME: Final = bytes.fromhex("550403")
_OID_ORGANIZATION: Final = bytes.fromhex("55040a")
_OID_ALTERNATIVE_NAME: Final = bytes.fromhex("551d11")
_DNS_NAME: Final = 0x82
_IP_ADDRESS: Final = 0x87
_TIME: Final = re.compile(r"(\d{12}|\d{14})Z")
_PIVOT: Final = 50  # RFC 5280: two-digit years from 50 on are of the 20th century


class NotACertificate(ValueError):
    """The bytes are no certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is said of one certificate."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...] = ()  # DNS names and addresses that it is for

    def covers(self, name: str) -> bool:
        """True if it is for this DNS name; a star stands for one label."""
        wanted = name.lower().rstrip(".")
        rest = wanted.partition(".")[2]
        return any(each.lower() in (wanted, f"*.{rest}") for each in self.names)


def parse_bundle(text: str) -> list[Certificate]:
    """The certificates of a webhook configuration's `caBundle`: base64 of PEM. Raises NotACertificate."""
    return [parse_der(der) for der in bundle_ders(text)]


def bundle_ders(text: str) -> list[bytes]:
    """The same, as DER. Raises NotACertificate if there is none, or anything that only looks like one."""
    try:
        pem = base64.b64decode(text, validate=True)
        found = [base64.b64decode(b"".join(body.split()), validate=True) for body in _PEM.findall(pem)]
    except (binascii.Error, ValueError) as error:
        raise NotACertificate("it is not base64") from error
    if not found:
        raise NotACertificate("there is no PEM certificate in it")
    return found


def parse_der(der: bytes) -> Certificate:
    """One certificate. Raises NotACertificate."""
    try:
        return _certificate(der)
    except (IndexError, ValueError, OverflowError, StopIteration) as error:
        raise NotACertificate("it is no X.509 certificate") from error


def _certificate(der: bytes) -> Certificate:
    (tag, outer), *_ = _elements(der)
    if tag != _SEQUENCE:
        raise NotACertificate("it is no X.509 certificate")
    (_, signed), *_ = _elements(outer)
    fields = [each for each in _elements(signed) if each[0] != _VERSION]
    _, _, (_, issuer), (_, validity), (_, subject), _, *more = fields  # serial number, algorithm, …, key
    before, after = (_moment(tag, body) for tag, body in _elements(validity))
    extensions = next((body for tag, body in more if tag == _EXTENSIONS), b"")
    return Certificate(_name(subject), _name(issuer), before, after, tuple(_alternative_names(extensions)))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of what stands side by side. Raises ValueError where a length does not fit."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + length]
        at += length


def _moment(tag: int, body: bytes) -> datetime:
    text = body.decode("ascii")
    if tag not in (_UTC_TIME, _GENERALIZED_TIME) or not _TIME.fullmatch(text):
        raise ValueError(text)
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _PIVOT else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _name(body: bytes) -> str:
    """The common name, or else the organization; "" for a name without either."""
    found: dict[bytes, str] = {}
    for _, group in _elements(body):
        for _, pair in _elements(group):
            (_, oid), (_, value) = _elements(pair)
            found.setdefault(oid, value.decode("utf-8", "replace"))
    return found.get(_OID_COMMON_NAME) or found.get(_OID_ORGANIZATION, "")


def _alternative_names(body: bytes) -> Iterator[str]:
    for _, extensions in _elements(body):
        for _, extension in _elements(extensions):
            (_, oid), *_, (_, value) = _elements(extension)
            if oid == _OID_ALTERNATIVE_NAME:
                (_, names), *_ = _elements(value)
                yield from filter(None, (_alternative(tag, name) for tag, name in _elements(names)))


def _alternative(tag: int, name: bytes) -> str:
    if tag == _DNS_NAME:
        return name.decode("ascii", "replace")
    return str(ip_address(name)) if tag == _IP_ADDRESS else ""
