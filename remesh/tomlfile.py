"""A TOML file against its model: one clear line for the first problem, with file, line and key.

Used by `remesh.policy` and `remesh.meshes`; translates tomllib's and pydantic's errors in one place.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from remesh.errors import ConfigError
from remesh.plain_words import problem_of

_Model = TypeVar("_Model", bound=BaseModel)
_Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_.\"' -]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\")\s*=")


def parse_toml(name: str, text: str, model: type[_Model], advice: str) -> _Model:
    """The file as `model`. Raises ConfigError `file:line: key: what is wrong; advice` for the first problem."""
    try:
        return model.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not valid TOML: {str(error).lower()}; {advice}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: not valid TOML: nested too deeply; {advice}") from error
    except ValidationError as error:
        raise ConfigError(_first_problem(name, text, error, advice)) from error


def _first_problem(name: str, text: str, error: ValidationError, advice: str) -> str:
    first = error.errors()[0]
    path: _Path = first["loc"]
    line = _line_of(text, path)
    where = f"{name}:{line}" if line else name
    key = ".".join(str(part) for part in path)
    return f"{where}: {key}{': ' if key else ''}{problem_of(first)}; {advice}"


def _line_of(text: str, path: _Path) -> int | None:
    """Line of the key, or of the innermost table or key around it that is written down."""
    best, line = 0, None
    for number, written in _written(text):
        shared = next((at for at, (a, b) in enumerate(zip(written, path, strict=False)) if a != b), len(written))
        if shared == len(written) and shared > best and shared <= len(path):
            best, line = shared, number
    return line


def _written(text: str) -> Iterator[tuple[int, _Path]]:
    """Every header and key with its line, tables of arrays counted."""
    table: _Path = ()
    counted: dict[_Path, int] = {}
    for number, row in enumerate(text.splitlines(), 1):
        header = _HEADER.match(row)
        if header is not None:
            table = tuple(part.strip(" \"'") for part in header[2].split("."))
            if header[1] == "[[":
                counted[table] = counted.get(table, -1) + 1
                table = (*table, counted[table])
            yield number, table
            continue
        key = _KEY.match(row)
        if key is not None:
            yield number, (*table, key[1].strip('"'))
