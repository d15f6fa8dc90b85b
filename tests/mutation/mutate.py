"""Plain seeded mutators: of text, of JSON values, of bytes. The same seed gives the same mutants."""

import json
import random
from typing import Any

ODD_TEXTS = (
    "", " ", "\x00", "\x1b[2J\x1b[31m", "\x9b31m", "\u202egnp.exe", "\u200b", "\ufeff", "\ud800", "\U0001f4a5", "İıſ",
    "ﬀ", "é" * 40, "\r\n", "\t", "%s%n", "{0}", "${x}", "<script>alert(1)</script>", "'; DROP--", "../../etc/passwd",
    "-", "null", "true", "0", "-1", "1e999", "NaN", "kube-system", "linkerd.io/inject", "disabled", "enabled",
    "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00", "/", "a/b/c", ":", "=", "*", "\\", '"',
)  # fmt: skip
ODD_NUMBERS = (0, -1, 1, 2, 255, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.5, -0.0, 1e308)
# Words that a wrong pattern would stumble over: parts of real failure texts.
PHRASES = (
    'failed calling webhook "', 'admission webhook "', '" denied the request: ', "exceeded quota", "is forbidden",
    "connection refused", "context deadline exceeded", "no endpoints available", "x509: ", "Internal error occurred: ",
    "AdmissionReview", '"allowed":false', "Error creating: ", "https://a.b.svc:443/mutate", "already exists", "healthy",
    "violates PodSecurity", "timeout", "EOF", "\n\n", '\\"', "because it is being terminated",
)  # fmt: skip
HUGE = 70_000  # characters; over every bound that a text has
DEEP = 2_000  # levels; over every recursion that is not bounded


class Mutator:
    """Makes mutants from one source of chance."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)

    def text(self, base: str, others: tuple[str, ...] = ()) -> str:
        """One to four changes of a text; seldom one that makes it huge."""
        for _ in range(self.random.randint(1, 4)):
            base = self._text(base, others)
        return base[: 4 * HUGE]

    def _text(self, base: str, others: tuple[str, ...]) -> str:
        rng = self.random
        first, last = sorted((rng.randint(0, len(base)), rng.randint(0, len(base))))
        match rng.randrange(12):
            case 0:
                return base[:first] + base[last:]
            case 1:
                return base[:first] + base[first:last] * 2 + base[last:]
            case 2:
                return base[:first] + rng.choice(ODD_TEXTS) + base[first:]
            case 3:
                return base[:first] + rng.choice(PHRASES) + base[first:]
            case 4:
                return base[:first]
            case 5:
                return base[first:last][::-1] + base[last:]
            case 6:
                other = rng.choice(others) if others else base
                return base[:first] + other[rng.randint(0, len(other)) :]
            case 7:
                return base.swapcase() if rng.random() < 0.5 else base.upper()
            case 8:
                return json.dumps(base)  # wrapped once more, as some controllers do
            case 9:
                return base.replace(rng.choice((" ", '"', ":", "webhook", ".svc")), rng.choice(ODD_TEXTS))
            case 10 if rng.random() < 0.005:
                return base[:first] + rng.choice(ODD_TEXTS + PHRASES) * (HUGE // 8) + base[first:]
            case _:
                return base[:first] + chr(rng.randrange(0x20, 0x2FF)) + base[first + 1 :]

    def lines(self, base: str) -> str:
        """One or two values of a file of `key = value` lines changed: most of what comes out can still be read."""
        lines = base.split("\n")
        assigned = [number for number, line in enumerate(lines) if "=" in line and not line.startswith("#")]
        for _ in range(self.random.randint(1, 2)):
            number = self.random.choice(assigned)
            key = lines[number].split("=", 1)[0]
            odd = self.random.choice((*ODD_TEXTS, *ODD_NUMBERS, True, ["a"], [], "*", "?[a", "(" * 50, "a" * 5000))
            match self.random.randrange(4):
                case 0:
                    lines[number] = ""
                case 1:
                    lines[number] = lines[self.random.choice(assigned)]
                case _:
                    lines[number] = f"{key}= {json.dumps(odd)}"
        return "\n".join(lines)

    def value(self, text: str) -> Any:
        """One to three changes of the JSON document in `text`."""
        document = json.loads(text)
        for _ in range(self.random.randint(1, 3)):
            document = self._value(document)
        return document

    def _value(self, document: Any) -> Any:
        rng = self.random
        places = list(_places(document))
        if not places:
            return self.odd(document)
        inside, key = rng.choice(places)
        match rng.randrange(8):
            case 0 | 1:
                del inside[key]
            case 2 | 3:
                inside[key] = self.odd(inside[key])
            case 4:
                other, where = rng.choice(places)
                if not _holds(inside[key], other) and not _holds(other[where], inside):
                    inside[key], other[where] = other[where], inside[key]
            case 5 if isinstance(inside, dict):
                inside[rng.choice(ODD_TEXTS)] = inside[key]
            case 6 if isinstance(inside, list):
                inside.extend([inside[key]] * rng.randint(1, 50))
            case _:
                if isinstance(inside[key], str):
                    inside[key] = self.text(inside[key])
                else:
                    inside[key] = self.odd(inside[key])
        return document

    def odd(self, old: Any) -> Any:
        """Something of another type, or at a bound."""
        rng = self.random
        chance = rng.random()
        if chance < 0.01:
            return deep(rng.choice((50, 200, DEEP)))
        if chance < 0.02:
            return rng.choice("ax\x1b→") * HUGE
        choices: tuple[Any, ...] = (None, True, False, [], {}, [old], {"a": old}, [None], {"": None}, str(old)[:1000])
        return rng.choice((*choices, rng.choice(ODD_NUMBERS), rng.choice(ODD_NUMBERS), *rng.sample(ODD_TEXTS, 6)))

    def raw(self, data: bytes) -> bytes:
        """A few bytes changed, left out or put in."""
        changed = bytearray(data)
        for _ in range(self.random.randint(1, 6)):
            place = self.random.randint(0, max(0, len(changed) - 1))
            match self.random.randrange(4):
                case 0:
                    changed[place : place + 1] = bytes([self.random.randrange(256)])
                case 1:
                    del changed[place : place + self.random.randint(1, 20)]
                case 2:
                    changed[place:place] = self.random.choice(
                        (b"\xff", b"\x00", b"{", b"]", b'"', b"\\u", b"\xed\xa0\x80")
                    )
                case _:
                    del changed[self.random.randint(0, len(changed)) :]
        return bytes(changed)


def deep(levels: int) -> Any:
    """Nested lists and objects."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def _places(value: Any) -> Any:
    """Every (container, key), without going into what is too deep to walk."""
    stack = [(value, 0)]
    while stack:
        inside, depth = stack.pop()
        keys: Any = list(inside) if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
        for key in keys:
            yield inside, key
            if depth < 30:
                stack.append((inside[key], depth + 1))


def _holds(value: Any, wanted: Any) -> bool:
    """True if `wanted` is `value` or inside of it: swapping the two would make a ring."""
    return value is wanted or any(inside is wanted or inside[key] is wanted for inside, key in _places(value))


def dumps(document: Any) -> bytes:
    """The document as an API server would send it, if it can be written at all. Raises RecursionError."""
    return json.dumps(document).encode()
