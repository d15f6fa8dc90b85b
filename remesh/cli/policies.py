"""Policies that a command makes from another one, as a file for its child processes."""

import json
from pathlib import Path
from typing import Any

from remesh.policy import Mode, Policy


def observing(policy: Policy) -> Policy:
    """The policy with mode observe."""
    return policy.model_copy(update={"mode": Mode.OBSERVE})


def write_policy(policy: Policy, path: Path) -> Path:
    """Write a policy as TOML, readable by the owner alone; returns the path."""
    path.write_text(policy_text(policy), encoding="utf-8")
    path.chmod(0o600)
    return path


def policy_text(policy: Policy) -> str:
    """The policy as TOML. Its strings, numbers, booleans and arrays are written alike in JSON."""
    document: dict[str, Any] = policy.model_dump(mode="json", exclude_none=True)
    plain = {key: value for key, value in document.items() if not isinstance(value, dict)}
    sections = {key: value for key, value in document.items() if isinstance(value, dict)}
    parts = [_rows(plain), *(f"[{name}]\n{_rows(rows)}" for name, rows in sections.items())]
    return "\n".join(parts)


def _rows(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
