"""A thin client of the API server for tests: JSON in, JSON out, nothing modelled."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import urllib3

from tests.cluster.errors import ApiError

Object = dict[str, Any]

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class Api:
    """Requests to one API server under one identity. Safe to share between threads."""

    def __init__(
        self,
        server: str,
        ca_file: Path,
        *,
        token: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        self.server = server
        identity = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(
            maxsize=16,
            ca_certs=str(ca_file),
            cert_file=certificate,
            key_file=key,
            retries=False,
            headers={**identity, "Accept": "application/json"},
        )

    @classmethod
    def from_kubeconfig(cls, kubeconfig: Path) -> Self:
        """The client of one of this cluster's own kubeconfig files, which are JSON."""
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        return cls(
            cluster["server"],
            Path(cluster["certificate-authority"]),
            token=user.get("token"),
            certificate=user.get("client-certificate"),
            key=user.get("client-key"),
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: float = 60.0,
        impersonate: str = "",
    ) -> Object:
        """One request; the answer's JSON. Raises `ApiError` for an error status or where no answer comes."""
        identity = {"Impersonate-User": impersonate} if impersonate else {}
        try:
            response = self._pool.request(
                method,
                self.server + path,
                fields=dict(query) if query and body is None else None,
                body=None if body is None else json.dumps(body),
                headers={**self._pool.headers, **identity, "Content-Type": content_type},
                timeout=timeout,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"{method} {path}: {error}") from error
        answer: Object = _decode(response.data)
        if response.status >= 400:
            raise ApiError(response.status, str(answer.get("message", "")))
        return answer

    def get(self, path: str, **query: str) -> Object:
        """An object, or a list of objects."""
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[Object]:
        """The items of a list."""
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def post(self, path: str, body: Object, *, timeout: float = 60.0, impersonate: str = "") -> Object:
        """Create an object, as the user `impersonate` where one is given."""
        return self.request("POST", path, body, timeout=timeout, impersonate=impersonate)

    def put(self, path: str, body: Object) -> Object:
        """Replace an object."""
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, *, kind: str = "merge") -> Object:
        """Change an object; `kind` is merge, strategic or json."""
        return self.request("PATCH", path, body, content_type=PATCH_TYPES[kind])

    def delete(self, path: str, body: Object | None = None) -> Object:
        """Delete an object."""
        return self.request("DELETE", path, body)

    def stream(self, path: str, **query: str) -> Iterator[bytes]:
        """The lines of an answer that does not end, such as a watch. Raises `ApiError` as `request` does."""
        response = self._pool.request(
            "GET", self.server + path, fields=query, preload_content=False, timeout=urllib3.Timeout(connect=10)
        )
        try:
            if response.status >= 400:
                raise ApiError(response.status, str(_decode(response.data).get("message", "")))
            yield from response
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"GET {path}: {error}") from error
        finally:
            response.close()

    def ensure(self, path: str, body: Object) -> None:
        """Create an object unless one of its name is there already."""
        try:
            self.post(path, body)
        except ApiError as error:
            if error.status != 409:
                raise

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def _decode(data: bytes) -> Object:
    try:
        decoded = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace")}
    return decoded if isinstance(decoded, dict) else {"message": str(decoded)}
