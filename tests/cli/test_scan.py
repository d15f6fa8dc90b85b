"""`remesh scan` where there is nothing to show, for whoever may not look further."""

from types import SimpleNamespace
from typing import Any

import pytest

from remesh.cli.scan import _elsewhere, _require_namespace
from remesh.errors import Forbidden, NotFound


def refuses(*_: object) -> Any:
    raise Forbidden("no right", status=403)


def a_survey(*, namespace: Any = refuses, scan: Any = refuses) -> Any:
    return SimpleNamespace(view=SimpleNamespace(namespace=namespace), scan=scan)


def found_in(*namespaces: str) -> Any:
    return lambda *_: [SimpleNamespace(ref=SimpleNamespace(namespace=name)) for name in namespaces]


def test_who_may_not_read_namespaces_or_look_elsewhere_gets_no_error_and_no_hint() -> None:
    _require_namespace(a_survey(), "shop")
    assert _elsewhere(a_survey(), None) == ""


def test_a_namespace_that_is_not_there_is_not_found() -> None:
    _require_namespace(a_survey(namespace=lambda _: object()), "shop")
    with pytest.raises(NotFound, match="namespace shop is not there"):
        _require_namespace(a_survey(namespace=lambda _: None), "shop")


def test_findings_elsewhere_are_counted() -> None:
    assert _elsewhere(a_survey(scan=found_in()), None) == ""
    shown = "`remesh scan -A` shows what is there."
    assert _elsewhere(a_survey(scan=found_in("a")), None) == f"Elsewhere: 1 finding in 1 other namespace; {shown}"
    more = _elsewhere(a_survey(scan=found_in("a", "a", "b")), None)
    assert more == f"Elsewhere: 3 findings in 2 other namespaces; {shown}"
