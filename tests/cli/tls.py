"""A TLS server on loopback, and certificates that are right or wrong in one way each."""

import base64
import datetime
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster import pki

DAY = datetime.timedelta(days=1)


def issued(
    ca: pki.KeyPair | None,
    names: Sequence[str],
    *,
    since: datetime.timedelta = -DAY,
    until: datetime.timedelta = 30 * DAY,
    common_name: str = "serving",
) -> pki.KeyPair:
    """A certificate of `ca`, or one that signed itself; its dates counted from now."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(ca.certificate.subject if ca else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([pki._alternative(each) for each in names]), critical=False
        )
    return pki.KeyPair(builder.sign(ca.key if ca else key, hashes.SHA256()), key)


def bundle(*pairs: pki.KeyPair) -> str:
    """A `caBundle` of these certificates."""
    return base64.b64encode(b"".join(pair.certificate_pem for pair in pairs)).decode()


@contextmanager
def serving(pair: pki.KeyPair, folder: Path) -> Iterator[int]:
    """The port at which this certificate is served."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair.write(folder, "served"))

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            try:
                with context.wrap_socket(self.request, server_side=True) as secured:
                    secured.recv(1)
            except OSError:
                return

    class Server(ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

        def shutdown_request(self, request: Any) -> None:
            self.close_request(request)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
