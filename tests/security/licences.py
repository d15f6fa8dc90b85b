"""`python -m tests.security.licences`: docs/licences.md anew, from the lock files and the packages' metadata."""

import re
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "licences.md"
RUNTIME, DEVELOPMENT = "requirements.lock", "requirements-dev.lock"

# Locked for other versions of Python than the one that looks, as their projects declare it.
NOT_EVERYWHERE: Final = {"async-timeout": "Apache-2.0"}

ALLOWED: Final = frozenset(
    {"0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"}
)
"""All permit use, change and passing on, in companies, too. MPL-2.0 asks that changes to its own files stay open."""

# Projects' own words, older than SPDX's names.
_WORDS: Final = {
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD",
    "new bsd": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mit style": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
}
_PINNED: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)

_HEAD: Final = """# Licences

remesh itself is under the Apache License 2.0. This page is made from the lock files and from what each package says of
itself (`python -m tests.security.licences`); a test fails if it is out of date, or if a package comes under a licence
that is not one of these: {allowed}.
None of them forbids any use.
"""


def locked(name: str) -> dict[str, str]:
    """Versions by package, of one lock file."""
    return dict(_PINNED.findall((ROOT / name).read_text(encoding="utf-8")))


def licence(package: str) -> str:
    """By SPDX's name where there is one. Empty if the package says nothing."""
    try:
        told: Any = metadata.metadata(package)  # an email.message.Message
    except metadata.PackageNotFoundError:
        return NOT_EVERYWHERE.get(package, "")
    expression = told.get("License-Expression")
    if expression:
        return str(expression)
    lines = str(told.get("License") or "").strip().splitlines()
    classifiers = [
        each.rpartition(" :: ")[2] for each in told.get_all("Classifier", []) if each.startswith("License :: OSI")
    ]
    named = [_spdx(word) for word in [*lines[:1], *classifiers] if word != "UNKNOWN"]
    return next((each for each in named if acceptable(each)), named[0] if named else "")


def _spdx(words: str) -> str:
    return _WORDS.get(words.strip().lower(), words.strip())


def acceptable(expression: str) -> bool:
    """True if every licence of the expression is allowed, or with OR at least one."""
    return any(
        all(each.strip(" ()") in ALLOWED for each in re.split(r"\bAND\b", choice))
        for choice in re.split(r"\bOR\b", expression)
    )


def packages() -> dict[str, dict[str, str]]:
    """Versions by package: what remesh runs with, and what else its development needs."""
    runtime = locked(RUNTIME)
    more = {name: version for name, version in locked(DEVELOPMENT).items() if name not in runtime}
    return {"What remesh runs with": runtime, "What its development needs besides": more}


def page() -> str:
    """The whole page."""
    parts = [_HEAD.format(allowed=", ".join(sorted(ALLOWED)))]
    for title, found in packages().items():
        rows = [f"| {name} | {found[name]} | {licence(name)} |" for name in sorted(found)]
        parts.append("\n".join([f"## {title}", "", "| package | version | licence |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
