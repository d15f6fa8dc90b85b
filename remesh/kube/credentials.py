"""Who remesh is to the API server: each way to authenticate is an `Auth` that gives request headers.

Nothing here prints or logs a secret, and no representation shows one.
"""

import base64
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from remesh.errors import ConfigError, Unauthorized

TOKEN_FILE_SECONDS = 60.0
"""A token file is read again after this long; the kubelet rotates it well before it expires."""
Credential = tuple[str, datetime | None]
"""Value of the Authorization header, and when it expires (None: not known)."""

EARLY_SECONDS = 60.0
"""A plugin's token is renewed this long before it expires, so that it does not expire on the way."""


class Auth(Protocol):
    """A way to authenticate."""

    def headers(self) -> Mapping[str, str]:
        """Headers of the next request."""

    def renew(self) -> bool:
        """After a 401: fetch the credentials again. False if there is nothing that could have changed."""


class NoAuth:
    """Anonymous, or by client certificate alone."""

    def headers(self) -> Mapping[str, str]:
        """None."""
        return {}

    def renew(self) -> bool:
        """Nothing to renew."""
        return False


class FixedAuth:
    """A token, or a name and password, that stand in the kubeconfig."""

    def __init__(self, authorization: str) -> None:
        self._headers = {"Authorization": authorization}

    @classmethod
    def bearer(cls, token: str) -> "FixedAuth":
        """By token."""
        return cls(f"Bearer {token}")

    @classmethod
    def basic(cls, name: str, password: str) -> "FixedAuth":
        """By name and password."""
        return cls("Basic " + base64.b64encode(f"{name}:{password}".encode()).decode())

    def headers(self) -> Mapping[str, str]:
        """The same every time."""
        return self._headers

    def renew(self) -> bool:
        """Nothing to renew."""
        return False


class TokenFileAuth:
    """A token in a file that somebody else rotates, as the kubelet does for service accounts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._token = self._read()
        self._read_at = time.monotonic()

    def headers(self) -> Mapping[str, str]:
        """With the token as it was at most a minute ago."""
        if time.monotonic() - self._read_at > TOKEN_FILE_SECONDS:
            self.renew()
        return {"Authorization": f"Bearer {self._token}"}

    def renew(self) -> bool:
        """Read the file again. True if it holds another token now."""
        with self._lock:
            before, self._token = self._token, self._read()
            self._read_at = time.monotonic()
            return self._token != before

    def _read(self) -> str:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"token file {self._path}: {reason}; check the path and its rights") from error
        if not token:
            raise ConfigError(f"token file {self._path}: empty; write a token into it")
        return token


class PluginAuth:
    """A token from an exec or auth-provider plugin, fetched again when it expires.

    `fetch` raises Unauthorized. `first` is what is known already; None: `fetch` is called at the first request.
    """

    def __init__(self, fetch: Callable[[], Credential], first: Credential | None = None) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._value = ""
        self._renew_at: datetime | None = None
        if first:
            self._take(first)

    def headers(self) -> Mapping[str, str]:
        """With a token that has not expired. Runs the plugin if need be."""
        with self._lock:
            if not self._value or (self._renew_at and datetime.now(UTC) >= self._renew_at):
                self._take(self._fetch())
            return {"Authorization": self._value}

    def renew(self) -> bool:
        """Run the plugin again. True if it gives another token now."""
        with self._lock:
            before = self._value
            self._take(self._fetch())
            return self._value != before

    def _take(self, credential: Credential) -> None:
        self._value, expires = credential
        early = expires - timedelta(seconds=EARLY_SECONDS) if expires else None
        # A token that lives for less than a minute is used to its end, or the plugin would run for every request.
        self._renew_at = early if early and early > datetime.now(UTC) else expires


def run_exec_plugin(exec_: Mapping[str, Any], cluster: Mapping[str, Any], user: str) -> Mapping[str, Any]:
    """Status of the ExecCredential that the kubeconfig's command prints. Raises Unauthorized in one line.

    The official client runs it; importing that takes two seconds and 140 MB, so it is left to the kubeconfigs
    that need it.
    """
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    command = str(exec_.get("command", ""))
    try:
        plugin: Any = ExecProvider(ConfigNode("exec", dict(exec_)), None, ConfigNode("cluster", dict(cluster)))  # type: ignore[no-untyped-call]
        return dict(plugin.run())
    except FileNotFoundError as error:
        hint = str(exec_.get("installHint") or "install it or correct the kubeconfig").strip().splitlines()[0]
        raise Unauthorized(f"user {user}: credential plugin {command!r} is not installed; {hint}") from error
    except (ConfigException, OSError, KeyError, TypeError) as error:
        raise Unauthorized(f"user {user}: credential plugin {command!r} failed: {_first_line(error)}") from error


def credential_of(status: Mapping[str, Any], exec_: Mapping[str, Any], user: str) -> Credential:
    """The token in an ExecCredential's status. Raises Unauthorized if there is none."""
    token = status.get("token")
    if not token:
        raise Unauthorized(f"user {user}: credential plugin {exec_.get('command')!r} gave no token; log in again")
    return f"Bearer {token}", _time(status.get("expirationTimestamp"))


def auth_provider_token(config: Mapping[str, Any], context: str, user: str) -> Credential:
    """Authorization header's value and expiry from an auth-provider entry (OIDC, GCP), by the official client."""
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader

    loader: Any = KubeConfigLoader(  # type: ignore[no-untyped-call]
        dict(config), active_context=context, config_base_path=""
    )
    try:
        loader._load_authentication()  # there is no public door to the token without the cluster's files
    except (ConfigException, OSError, KeyError, TypeError, ValueError) as error:
        raise Unauthorized(f"user {user}: its auth-provider failed: {_first_line(error)}; log in again") from error
    token = getattr(loader, "token", "")
    if not token:
        raise Unauthorized(f"user {user}: its auth-provider gave no token; log in again")
    return str(token), getattr(loader, "expiry", None)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
