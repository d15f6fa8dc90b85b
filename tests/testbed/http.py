"""Requests to an API server with nothing in between: status codes, bodies and watch lines as they are."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import urllib3
import yaml

T = TypeVar("T")
Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """One answer of the API server."""

    code: int
    body: Object
    headers: Mapping[str, str] = field(default_factory=dict)

    def ok(self) -> Object:
        """The body; fails the test when it is a refusal."""
        assert self.code < 400, f"{self.code}: {self.body.get('message')}"
        return self.body

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))


class Http:
    """One API server, with the token of a kubeconfig."""

    def __init__(self, server: str, token: str, ca_file: str | None) -> None:
        self._server = server
        self._pool = urllib3.PoolManager(ca_certs=ca_file, retries=False, maxsize=16)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        return cls(cluster["server"], user["token"], cluster.get("certificate-authority"))

    def close(self) -> None:
        self._pool.clear()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        response = self._pool.request(
            method,
            self._url(path, query),
            body=None if body is None else json.dumps(body),
            headers={**self._headers, "Content-Type": content_type, **(headers or {})},
            timeout=60.0,
        )
        return Answer(response.status, _decoded(response.data), response.headers)

    def _url(self, path: str, query: dict[str, Any]) -> str:
        return self._server + path + (f"?{urlencode(query)}" if query else "")

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", path, **query)

    def post(self, path: str, body: Object, **query: Any) -> Answer:
        return self.call("POST", path, body, **query)

    def put(self, path: str, body: Object, **query: Any) -> Answer:
        return self.call("PUT", path, body, **query)

    def patch(self, path: str, body: Any, kind: str = MERGE_PATCH, **query: Any) -> Answer:
        return self.call("PATCH", path, body, content_type=kind, **query)

    def delete(self, path: str, body: Object | None = None, **query: Any) -> Answer:
        return self.call("DELETE", path, body, **query)

    def items(self, path: str, **query: Any) -> list[Object]:
        found: list[Object] = self.get(path, **query).ok()["items"]
        return found

    def watch(self, path: str, **query: Any) -> Iterator[Object]:
        """The watch events until the server ends the watch."""
        url = self._url(path, {"watch": "true", **query})
        response = self._pool.request(
            "GET", url, headers=self._headers, preload_content=False, timeout=urllib3.Timeout(connect=10, read=60)
        )
        with closing(response):
            assert response.status == 200, response.data
            rest = b""
            for chunk in response.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)

    def wait(self, look: Callable[[], T], what: str, seconds: float = 60.0) -> T:
        """Poll until `look` returns something true, and return that."""
        end = time.monotonic() + seconds
        while not (seen := look()):
            assert time.monotonic() < end, f"waited {seconds:.0f} s in vain for {what}; last seen: {seen!r}"
            time.sleep(0.05)
        return seen


def _decoded(data: bytes) -> Object:
    try:
        decoded = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace")}
    return decoded if isinstance(decoded, dict) else {"message": str(decoded)}
