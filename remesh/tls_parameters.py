"""The TLS parameters in a URL's query: `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs`, …

The same ones for Redis, Sentinel and RabbitMQ, by redis-py's names. A certificate is verified unless the URL says
otherwise by name, and then the log says so, too.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remesh import logs
from remesh.errors import ConfigError

log = logs.get("tls")

_RULES = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_KNOWN = (*_FILES, "ssl_cert_reqs", "ssl_check_hostname")


def tls_parameters(query: Mapping[str, str], variable: str) -> dict[str, Any]:
    """Those of `query`, with their values as redis-py takes them.

    `variable` is the setting that an error names. Raises ConfigError for a parameter and a rule that is none.
    """
    for key in query:
        if key.startswith("ssl_") and key not in _KNOWN:
            raise ConfigError(f"{variable}: parameter {key[:30]!r} is not known; known are {', '.join(_KNOWN)}")
    # Without parameters kombu would accept any certificate.
    found: dict[str, Any] = {"ssl_cert_reqs": "required"}
    found |= {key: value for key, value in query.items() if key.startswith("ssl_")}
    found["ssl_cert_reqs"] = _rule(str(found["ssl_cert_reqs"]), variable)
    if "ssl_check_hostname" in found:
        found["ssl_check_hostname"] = found["ssl_check_hostname"].lower() not in ("false", "no", "0")
    return found


def check_tls(parameters: Mapping[str, Any], variable: str) -> None:
    """Raise ConfigError for a certificate or key that cannot be read: libraries say so late, and without its name.

    What is not verified because the URL says so is said in the log.
    """
    unverified = parameters.get("ssl_cert_reqs", ssl.CERT_REQUIRED) is not ssl.CERT_REQUIRED
    if unverified or parameters.get("ssl_check_hostname") is False:
        log.warning("the server's certificate is not fully verified, as the URL asks", setting=variable)
    for key in _FILES:
        path = parameters.get(key)
        if path is None:
            continue
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{variable}: {key} {path}: {error.strerror}; give a file that can be read") from error


def _rule(text: str, variable: str) -> ssl.VerifyMode:
    rule = _RULES.get(text.lower().removeprefix("cert_"))
    if rule is None:
        raise ConfigError(f"{variable}: ssl_cert_reqs is {text[:20]!r}; give required, optional or none")
    return rule
