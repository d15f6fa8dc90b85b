"""How to reach the API server: kubeconfig files as kubectl merges them, or the pod's own service account.

`load_access` is the one door. Every mistake in a kubeconfig is one ConfigError naming file and entry.
"""

import base64
import binascii
import os
import ssl
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import yaml

from remesh import logs
from remesh.errors import ConfigError
from remesh.kube.credentials import (
    Auth,
    FixedAuth,
    NoAuth,
    PluginAuth,
    TokenFileAuth,
    auth_provider_token,
    credential_of,
    run_exec_plugin,
)

log = logs.get("kube.config")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = "in-cluster"
"""Name of the context when the pod's service account is used."""

_LISTS = ("clusters", "users", "contexts")
_PATHS = {  # entries that are file names, relative to the kubeconfig's folder
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}


@dataclass(frozen=True, slots=True)
class Access:
    """Everything a client needs to talk to one API server."""

    server: str  # URL
    context: str  # for messages
    namespace: str = "default"  # of the context
    tls: ssl.SSLContext | None = field(default=None, repr=False)  # None: plain HTTP
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)  # may carry a password
    auth: Auth = field(default_factory=NoAuth, repr=False)
    impersonate: Mapping[str, str] = field(default_factory=dict)

    def headers(self) -> dict[str, str]:
        """Authentication headers of the next request."""
        return {**self.auth.headers(), **self.impersonate}


@dataclass(slots=True)
class _Kubeconfig:
    """Merged kubeconfig files."""

    files: list[Path]
    current: str = ""
    entries: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: {part: {} for part in _LISTS})

    @property
    def named(self) -> str:
        return ":".join(str(path) for path in self.files)

    def entry(self, part: str, name: str, wanted_by: str) -> dict[str, Any]:
        """One cluster, user or context by its name."""
        found = self.entries[part].get(name)
        if found is None:
            known = ", ".join(sorted(self.entries[part])) or "none"
            raise ConfigError(
                f"kubeconfig {self.named} has no {part[:-1]} {name!r}{wanted_by}; there are: {known}; correct the name"
            )
        return found


def load_access(kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """Find the API server and credentials: `kubeconfig`, else KUBECONFIG, else ~/.kube/config, else the pod's own.

    Raises ConfigError for a file or entry that cannot be used, Unauthorized if a credential plugin fails.
    """
    files = [kubeconfig] if kubeconfig else _default_files()
    if files:
        return _from_kubeconfig(_merge(files), context)
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigError("no kubeconfig found and not inside a pod; set KUBECONFIG or write ~/.kube/config")
    if context:
        raise _nowhere(context)
    return _in_cluster()


def _nowhere(context: str) -> ConfigError:
    return ConfigError(f"context {context!r}: there is no kubeconfig to find it in; set KUBECONFIG or drop --context")


def context_name(kubeconfig: Path | None = None, context: str | None = None) -> str | None:
    """Name of the context that `load_access` would use; None inside a pod.

    Raises ConfigError for a file that cannot be used, and for a context that was asked for and is not there.
    """
    files = [kubeconfig] if kubeconfig else _default_files()
    if not files and context:
        raise _nowhere(context)
    if not files:
        return None
    merged = _merge(files)
    if context:
        merged.entry("contexts", context, "")
    return context or merged.current or None


def _default_files() -> list[Path]:
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        there = [path for path in named if path.exists()]  # as kubectl does, files that are not there are passed over
        if not there and not os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise ConfigError(f"kubeconfig {named[0]} (from KUBECONFIG): no such file; correct KUBECONFIG")
        return there
    home = Path("~/.kube/config").expanduser()
    return [home] if home.exists() else []


def _merge(files: list[Path]) -> _Kubeconfig:
    merged = _Kubeconfig(files)
    for path in files:
        document = _read(path)
        merged.current = merged.current or str(document.get("current-context") or "")
        for part in _LISTS:
            for name, entry in _entries(path, document, part):
                merged.entries[part].setdefault(name, entry)  # the first file that names it wins, as with kubectl
    return merged


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: {_plain(error)}; give a readable file with --kubeconfig") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"kubeconfig {path}: not UTF-8; correct the file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"kubeconfig {where}: not valid YAML: {problem}; correct the file") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # `!!int ""`, 2026-99-99
        problem = "nested too deeply" if isinstance(error, RecursionError) else "a value that its tag does not allow"
        raise ConfigError(f"kubeconfig {path}: not valid YAML: {problem}; correct the file") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: not a kubeconfig (no mapping at the top); give another file")
    return document


def _entries(path: Path, document: dict[str, Any], part: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for number, value in enumerate(_as(list, document.get(part), path, part)):
        where = f"{part}[{number}]"
        item = _as(dict, value, path, where)
        if not item.get("name"):
            raise ConfigError(f"kubeconfig {path}: {where} has no name; correct the file")
        body = dict(_as(dict, item.get(part[:-1]), path, f"{where}.{part[:-1]}"))
        for key in _PATHS[part]:
            if body.get(key):
                body[key] = str(path.parent / Path(str(body[key])).expanduser())
        _anchor_command(path, body)
        found.append((str(item["name"]), body))
    return found


def _anchor_command(path: Path, body: dict[str, Any]) -> None:
    """A plugin given by a relative path lies beside the kubeconfig; one given by bare name is found on PATH."""
    exec_ = body.get("exec")
    if isinstance(exec_, dict) and os.sep in str(exec_.get("command", "")):
        body["exec"] = {**exec_, "command": str(path.parent.absolute() / str(exec_["command"]))}


def _as(shape: type, value: Any, path: Path, where: str) -> Any:
    if value is None:
        return shape()
    if not isinstance(value, shape):
        wanted = "list" if shape is list else "mapping"
        raise ConfigError(f"kubeconfig {path}: {where} must be a {wanted}; correct the file")
    return value


def _from_kubeconfig(merged: _Kubeconfig, context: str | None) -> Access:
    name = context or merged.current
    if not name:
        raise ConfigError(
            f"kubeconfig {merged.named} has no current context; pass --context or run `kubectl config use-context NAME`"
        )
    chosen = merged.entry("contexts", name, "")
    wanted_by = f" that context {name!r} names"
    cluster = merged.entry("clusters", str(chosen.get("cluster", "")), wanted_by)
    user_name = str(chosen.get("user") or "")
    user = merged.entry("users", user_name, wanted_by) if user_name else {}
    server = _server(merged, cluster, str(chosen.get("cluster")))
    tls = _tls(merged, cluster, user, user_name) if urlsplit(server).scheme == "https" else None
    if tls is None and not _is_loopback(urlsplit(server)):
        log.warning("the API server is reached without TLS", server=server)
    auth = _plain_auth(user) or _plugin_auth(name, cluster, user, user_name, tls)
    return Access(
        server=server,
        context=name,
        namespace=str(chosen.get("namespace") or "default"),
        tls=tls,
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        proxy_url=_proxy(merged, cluster),
        auth=auth,
        impersonate=_impersonation(user),
    )


def _server(merged: _Kubeconfig, cluster: dict[str, Any], name: str) -> str:
    server = str(cluster.get("server") or "")
    where = f"kubeconfig {merged.named}: cluster {name!r}"
    if "@" in server:  # names and errors are printed with it, and nothing else would use the password
        problem = "server carries a user or a password"
        raise ConfigError(f"{where}: {problem}; write https://HOST:PORT, and credentials into users")
    parts = _url(server)
    if parts is None or parts.scheme not in ("https", "http") or not parts.hostname:
        raise ConfigError(f"{where}: server {server!r} is no URL; write https://HOST:PORT")
    return server.rstrip("/")


def _proxy(merged: _Kubeconfig, cluster: dict[str, Any]) -> str:
    proxy = str(cluster.get("proxy-url") or "")
    parts = _url(proxy)
    if proxy and (parts is None or parts.scheme not in ("http", "https")):
        raise ConfigError(f"kubeconfig {merged.named}: proxy-url must begin with http:// or https://; correct it")
    return proxy


def _url(text: str) -> SplitResult | None:
    """The URL's parts; None where there are none, or the port is no number."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return parts


def proxy_from_environment(server: SplitResult) -> str:
    """HTTPS_PROXY or HTTP_PROXY for this server, "" where NO_PROXY or loopback exempts it, as kubectl does it."""
    if _is_loopback(server):
        return ""
    bypassed = urllib.request.proxy_bypass(server.netloc.rpartition("@")[2])
    return "" if bypassed else urllib.request.getproxies().get(server.scheme, "")


def _is_loopback(server: SplitResult) -> bool:
    host = server.hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _tls(merged: _Kubeconfig, cluster: dict[str, Any], user: dict[str, Any], user_name: str) -> ssl.SSLContext:
    authority = _text(merged, cluster, "certificate-authority")
    insecure = bool(cluster.get("insecure-skip-tls-verify"))
    if insecure and authority:
        both = "certificate-authority and insecure-skip-tls-verify exclude each other"
        raise ConfigError(f"kubeconfig {merged.named}: {both}; drop one")
    tls = tls_context(authority, f"kubeconfig {merged.named}: certificate-authority")
    if insecure:
        log.warning("TLS certificate of the API server is not verified", server=cluster.get("server"))
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate, key = _text(merged, user, "client-certificate"), _text(merged, user, "client-key")
    if certificate:
        _load_client_certificate(tls, certificate, key or certificate, f"user {user_name!r}")
    return tls


def tls_context(authority: str, where: str) -> ssl.SSLContext:
    """A verifying TLS context that trusts `authority` (PEM), or the system's authorities if that is empty."""
    try:
        tls = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{where}: not a PEM certificate; correct it") from error
    # Python 3.13 refuses authorities without a key identifier, which many clusters' own have; kubectl accepts them.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _load_client_certificate(tls: ssl.SSLContext, certificate: str, key: str, where: str) -> None:
    # OpenSSL takes file names only. The folder is the owner's alone and gone at the end of the block.
    with tempfile.TemporaryDirectory(prefix="remesh-") as folder:
        paths = []
        for name, text in (("certificate", certificate), ("key", key)):
            path = Path(folder) / name
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")
            paths.append(path)
        try:
            tls.load_cert_chain(paths[0], paths[1], password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(f"{where}: client certificate and key do not fit or are damaged; correct them") from error


def _text(merged: _Kubeconfig, entry: dict[str, Any], key: str) -> str:
    """PEM of `KEY-data` (base64), which wins as with kubectl, or of the file that `KEY` names."""
    data, name = entry.get(f"{key}-data"), entry.get(key)
    if data:
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"kubeconfig {merged.named}: {key}-data is not base64 of PEM; correct it") from error
    if not name:
        return ""
    try:
        return Path(str(name)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {merged.named}: {key} {name}: {_plain(error)}; correct the path") from error


def _plain_auth(user: dict[str, Any]) -> Auth | None:
    """What stands in the kubeconfig itself, in kubectl's order. None: a plugin, or a certificate alone."""
    if user.get("tokenFile"):
        return TokenFileAuth(Path(str(user["tokenFile"])))
    if user.get("token"):
        return FixedAuth.bearer(str(user["token"]))
    if user.get("username"):
        return FixedAuth.basic(str(user["username"]), str(user.get("password") or ""))
    return None


def _plugin_auth(
    context: str, cluster: dict[str, Any], user: dict[str, Any], user_name: str, tls: ssl.SSLContext | None
) -> Auth:
    if isinstance(user.get("exec"), dict):
        return _exec_auth(cluster, user["exec"], user_name, tls)
    if user.get("auth-provider"):
        whole = _single(context, cluster, user)
        return PluginAuth(lambda: auth_provider_token(whole, context, user_name))
    return NoAuth()


def _exec_auth(cluster: dict[str, Any], exec_: dict[str, Any], user_name: str, tls: ssl.SSLContext | None) -> Auth:
    """Run the plugin once now: whether it gives a token or a certificate is known only then."""
    status = run_exec_plugin(exec_, cluster, user_name)
    if status.get("clientCertificateData") and tls is not None:
        certificate, key = str(status["clientCertificateData"]), str(status.get("clientKeyData") or "")
        _load_client_certificate(tls, certificate, key, f"credential plugin of user {user_name!r}")
        if not status.get("token"):
            return NoAuth()
    first = credential_of(status, exec_, user_name)
    return PluginAuth(lambda: credential_of(run_exec_plugin(exec_, cluster, user_name), exec_, user_name), first)


def _single(context: str, cluster: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """A kubeconfig of this context alone, for the official client."""
    return {
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": "cluster", "user": "user"}}],
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
    }


def _impersonation(user: dict[str, Any]) -> dict[str, str]:
    headers = {"Impersonate-User": user.get("as"), "Impersonate-Uid": user.get("as-uid")}
    return {name: str(value) for name, value in headers.items() if value}


def _in_cluster() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{host}:{port}",
        context=IN_CLUSTER,
        namespace=_account_file("namespace") or "default",
        tls=tls_context(_account_file("ca.crt"), f"{SERVICE_ACCOUNT / 'ca.crt'}"),
        auth=TokenFileAuth(SERVICE_ACCOUNT / "token"),
    )


def _account_file(name: str) -> str:
    path = SERVICE_ACCOUNT / name
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{path}: {_plain(error)}; mount the pod's service account token") from error


def _plain(error: OSError | UnicodeDecodeError) -> str:
    """The operating system's words, or the encoding's."""
    if isinstance(error, OSError):
        text = error.strerror or type(error).__name__
        return text[0].lower() + text[1:]
    return "not UTF-8"
