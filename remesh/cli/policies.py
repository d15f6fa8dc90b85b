"""Policies that a command makes from another one, as a file for its child processes."""

import json
import re
from pathlib import Path
from typing import Any

from remesh.errors import UsageError
from remesh.policy import Mode, Policy, Scope

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, as Kubernetes has it


def policy_of_run(policy: Policy, namespaces: list[str], *, observe: bool) -> Policy:
    """The policy, narrowed by what was asked for: never wider than the operator's own.

    Raises UsageError for a namespace that the policy keeps remesh out of.
    """
    changed: dict[str, Any] = {"mode": Mode.OBSERVE} if observe else {}
    if namespaces:
        changed["scope"] = _narrowed(policy.scope, tuple(dict.fromkeys(namespaces)))
    return policy.model_copy(update=changed)


def _narrowed(scope: Scope, namespaces: tuple[str, ...]) -> Scope:
    for name in namespaces:
        if not _NAME.fullmatch(name):
            raise UsageError(f"-n {name!r} cannot be a namespace's name; correct it")
        if name in scope.protected_namespaces:
            raise UsageError(f"-n {name}: the policy protects this namespace; leave it out")
        if scope.namespaces and name not in scope.namespaces:
            allowed = ", ".join(scope.namespaces)
            raise UsageError(f"-n {name}: the policy's scope is {allowed}; choose among these, or change the policy")
    return scope.model_copy(update={"namespaces": namespaces})


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
