"""Renders docs/policy.md from the models, so that it cannot drift.

`python -m tests.docs.reference` writes it, and the pages of `tests.docs.mesh_pages`.
"""

import ast
import inspect
from enum import EnumType
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from remesh import policy
from remesh.policy import Policy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "policy.md"

HEAD = """# Policy reference

What remesh may do, where, and how fast. Copy `config/policy.toml`, change it, and pass it with `--policy` or
`REMESH_POLICY`. An unknown key or a value out of its bounds ends the start with file, line and key. Durations are in
seconds. This page is rendered from the models.
"""


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each field in the source."""
    body = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(told))):
                found[name] = " ".join(told.split())
    return found


def bounds(field: Any) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    told = [
        f"{words[name]} {getattr(rule, name):g}" for rule in field.metadata for name in words if hasattr(rule, name)
    ]
    return ", ".join(told)


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else str(value)


def section(title: str, model: type[BaseModel]) -> str:
    """One section of the file as a table."""
    told = docstrings(model)
    rows = [
        f"| `{name}` | `{shown(field.default)}` | {bounds(field)} | {told[name]} |"
        for name, field in model.model_fields.items()
    ]
    intro = (inspect.getdoc(model) or "").strip()
    return "\n".join(
        [f"## [{title}]", "", intro, "", "| key | default | bounds | meaning |", "|---|---|---|---|", *rows]
    )


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, field in Policy.model_fields.items():
        kind = field.annotation
        if isinstance(kind, EnumType):
            values = ", ".join(f"`{each.value}`" for each in kind)
            told = inspect.getdoc(policy.Mode)
            parts.append(f"## {name}\n\n{told} One of {values}; default `{field.default.value}`.\n")
        else:
            parts.append(section(name, kind) + "\n")  # type: ignore[arg-type]
    return "\n".join(parts)


if __name__ == "__main__":
    from tests.docs.mesh_pages import PAGES

    PAGE.write_text(render(), encoding="utf-8")
    for page, rendered in PAGES.items():
        page.write_text(rendered(), encoding="utf-8")
