"""Certificates read from their bytes, against the `cryptography` package as the judge."""

import base64
import datetime
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from remesh.certificates import NotACertificate, parse_bundle, parse_der

KEY = ec.generate_private_key(ec.SECP256R1())
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=60).filter(
    lambda words: len(words.encode()) <= 64  # what a common name may have at most, in bytes
)
MOMENTS = st.datetimes(datetime.datetime(1951, 1, 1), datetime.datetime(2150, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)
HOSTS = st.from_regex(r"(\*\.)?[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{2,9}){1,3}", fullmatch=True)
ADDRESSES = st.ip_addresses().map(str)


def made(
    common_name: str, since: datetime.datetime, until: datetime.datetime, names: list[str], *, ca: bool = False
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        alternatives = [x509.IPAddress(ipaddress.ip_address(n)) if _is_address(n) else x509.DNSName(n) for n in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(KEY, hashes.SHA256())


DATES = (datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@settings(deadline=None, max_examples=60)
@given(WORDS, MOMENTS, MOMENTS, st.lists(st.one_of(HOSTS, ADDRESSES), max_size=4), st.booleans())
def test_what_is_read_is_what_was_written(
    name: str, one: datetime.datetime, other: datetime.datetime, names: list[str], ca: bool
) -> None:
    since, until = sorted((one, other))
    certificate = made(name, since, until, names, ca=ca)
    read = parse_der(certificate.public_bytes(serialization.Encoding.DER))
    assert (read.subject, read.issuer) == (name, name)
    assert (read.not_before, read.not_after) == (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    assert list(read.names) == names


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_certificate_or_are_said_to_be_none(data: bytes) -> None:
    with pytest.raises(NotACertificate):
        parse_der(data)


ONE = made("a", *DATES, ["a.b"]).public_bytes(serialization.Encoding.DER)  # once: signatures differ in length


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_certificate_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(ONE)
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_der(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    except NotACertificate:
        return


def bundle(*certificates: x509.Certificate) -> str:
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    return base64.b64encode(b"# two authorities\n" + pem).decode()


def test_a_bundle_may_hold_several_with_words_between_them() -> None:
    found = parse_bundle(bundle(made("old", *DATES, []), made("new", *DATES, [], ca=True)))
    assert [each.subject for each in found] == ["old", "new"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%%%", "not base64"),
        (base64.b64encode(b"hello").decode(), "no PEM certificate"),
        (base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----").decode(), "no X.509"),
    ],
)
def test_a_bundle_that_is_none_is_named(text: str, words: str) -> None:
    with pytest.raises(NotACertificate, match=words):
        parse_bundle(text)


@pytest.mark.parametrize(
    ("names", "asked", "covered"),
    [
        (["web.shop.svc"], "web.shop.svc", True),
        (["*.shop.svc"], "web.shop.svc", True),
        (["*.svc"], "web.shop.svc", False),
        (["WEB.shop.svc"], "web.shop.svc", True),
        ([], "web.shop.svc", False),
    ],
)
def test_a_star_stands_for_one_label(names: list[str], asked: str, covered: bool) -> None:
    read = parse_der(made("x", *DATES, names).public_bytes(serialization.Encoding.DER))
    assert read.covers(asked) is covered
