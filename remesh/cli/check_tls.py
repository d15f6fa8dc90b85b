"""The certificate that an injector really serves, against the `caBundle` that the API server trusts it by.

Judged as the API server does: any certificate of the bundle is a trust anchor, and the name is `SERVICE.NAMESPACE.svc`
or the host of a `url`; a common name without subject alternative name counts for nothing. TLS itself judges; the
certificate is read only to say who issued it, for which names and until when. Used by `remesh.cli.check_injectors`.
"""

import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from remesh.certificates import Certificate, NotACertificate, bundle_ders, parse_bundle, parse_der
from remesh.cli.checks import Check, fail, ok, skip, warn
from remesh.cli.text import age, count

CONNECT_SECONDS: Final = 2.0
LEFT_DAYS: Final = 7  # warned of so long before the end; of short-lived ones when a tenth of their life is left
_CHECK: Final = "served-certificate"
# OpenSSL's codes of X509_verify_cert(3); all others mean that no chain leads to the bundle.
_EXPIRED, _NOT_YET, _WRONG_NAME, _WRONG_ADDRESS = 10, 9, 62, 64


@dataclass(frozen=True, slots=True)
class Target:
    """Where somebody serves, and the name that the API server expects there."""

    host: str
    port: int
    name: str

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Served:
    """What one target answered: a certificate and what is wrong with it, or why there was no answer."""

    target: Target
    certificate: Certificate | None = None
    wrong: str = ""
    unreachable: str = ""


def bundle_check(text: str | None, *, by_url: bool, now: datetime, subject: str) -> Check:
    """The bundle itself: there, whole, and not at its end."""
    if not text and by_url:
        return ok("ca-bundle", "caBundle: empty, so the API server's own authorities are trusted", subject)
    if not text:
        line = "caBundle is empty: the API server trusts no certificate that an injector in the cluster can have"
        return fail("ca-bundle", line, subject)
    try:
        found = parse_bundle(text)
    except NotACertificate as error:
        return fail("ca-bundle", f"caBundle cannot be used: {error}", subject)
    return _bundle_dates(found, now, subject)


def _bundle_dates(found: list[Certificate], now: datetime, subject: str) -> Check:
    valid = [each for each in found if each.not_before <= now < each.not_after]
    if not valid:
        ended = max(found, key=lambda each: each.not_after)
        what = "has expired" if ended.not_after <= now else "is not valid yet"
        return fail("ca-bundle", f"caBundle {what}: {_described(ended)}", subject)
    last = max(valid, key=lambda each: each.not_after)
    text = f"caBundle: {count(len(found), 'authority', 'authorities')}, {_described(last)}"
    if _ends_soon(last, now):
        return warn("ca-bundle", f"{text}: ends in {age((last.not_after - now).total_seconds())}", subject)
    return ok("ca-bundle", text, subject)


def served_check(answers: Iterable[Served], now: datetime, subject: str) -> Check:
    """What all replicas serve, as one answer: the worst of them."""
    answers = list(answers)
    seen = [each for each in answers if each.certificate is not None or each.wrong]
    silent = [each for each in answers if each.unreachable]
    for each in seen:
        if each.wrong:
            what = f"; it is {_described(each.certificate)}" if each.certificate else ""
            return fail(_CHECK, f"the certificate served at {each.target} {each.wrong}{what}", subject)
    if not seen:
        why = f": {silent[0].target} {silent[0].unreachable}" if silent else ": nobody serves"
        return skip(_CHECK, f"the served certificate was not checked from here{why}", subject)
    return _served_dates(seen, silent, now, subject)


def _served_dates(seen: list[Served], silent: list[Served], now: datetime, subject: str) -> Check:
    certificates = [each.certificate for each in seen if each.certificate is not None]
    first = min(certificates, key=lambda each: each.not_after)
    text = f"served certificate: {_described(first)}; trusted through caBundle, for {seen[0].target.name}"
    if len(seen) > 1:
        text += f", at all {len(seen)} endpoints"
    if _ends_soon(first, now):
        left = age((first.not_after - now).total_seconds())
        return warn(_CHECK, f"{text}: ends in {left}", subject, "see whether whoever issues it is at work")
    if silent:
        more = f"; {count(len(silent), 'endpoint')} not checked: {silent[0].target} {silent[0].unreachable}"
        return warn(_CHECK, text + more, subject, "see whether that replica hangs, or a NetworkPolicy is in the way")
    return ok(_CHECK, text, subject)


def examine(target: Target, bundle: str | None) -> Served:
    """Connect and look. Never raises."""
    try:
        der = _leaf(target)
    except (OSError, ValueError) as error:
        return Served(target, unreachable=_why(error))
    try:
        certificate = parse_der(der)
    except NotACertificate:
        certificate = None
    try:
        wrong = _problem(target, bundle)
    except (OSError, ValueError) as error:
        return Served(target, certificate, unreachable=_why(error))
    return Served(target, certificate, wrong)


def _leaf(target: Target) -> bytes:
    """The certificate as it is served, trusted or not. Nothing is sent over this connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _handshake(target, context)


def _problem(target: Target, bundle: str | None) -> str:
    """Why the API server would not trust it; "" if it would."""
    try:
        context = _trusting(bundle)
    except (NotACertificate, ssl.SSLError):
        return "cannot be trusted, for the caBundle cannot be used"
    try:
        _handshake(target, context)
    except ssl.SSLCertVerificationError as error:
        known = {
            _EXPIRED: "has expired, or its authority has",
            _NOT_YET: "is not valid yet: a clock is wrong",
            _WRONG_NAME: f"is not for {target.name}",
            _WRONG_ADDRESS: f"is not for {target.name}",
        }
        return known.get(error.verify_code, f"is not trusted through caBundle ({error.verify_message})")
    return ""


def _trusting(bundle: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False
    # As Go does: whatever is in the pool is an anchor, whether it issued itself or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if bundle:
        context.load_verify_locations(cadata=b"".join(bundle_ders(bundle)))
    else:
        context.load_default_certs()
    return context


def _handshake(target: Target, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection((target.host, target.port), CONNECT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=target.name) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def _described(certificate: Certificate) -> str:
    parts = [f"issued by {certificate.issuer!r}" if certificate.issuer else "without an issuer's name"]
    if certificate.names:
        shown = ", ".join(certificate.names[:4])
        parts.append(f"for {shown}" + (f" and {len(certificate.names) - 4} more" if len(certificate.names) > 4 else ""))
    return ", ".join([*parts, f"valid until {certificate.not_after:%Y-%m-%d %H:%M}Z"])


def _ends_soon(certificate: Certificate, now: datetime) -> bool:
    life = certificate.not_after - certificate.not_before
    return certificate.not_after - now < min(timedelta(days=LEFT_DAYS), life / 10)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"does not answer within {CONNECT_SECONDS:g} s"
    if isinstance(error, ssl.SSLError):
        return f"does not speak TLS as expected ({error.reason or 'handshake failed'})"
    text = (error.strerror or "") if isinstance(error, OSError) else ""
    return f"cannot be reached ({text[:1].lower() + text[1:]})" if text else "cannot be reached"
