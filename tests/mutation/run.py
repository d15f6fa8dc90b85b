"""Mutants by the number: makes them, checks them, counts what became of them, and keeps what did not hold."""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kube.wire import pod_list
from tests.mutation import checks, seeds
from tests.mutation.mutate import Mutator, dumps

KEPT = 20  # failures of each kind that are kept
TELL_SECONDS = 10.0


@dataclass
class Tally:
    """What became of the mutants of one kind."""

    name: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    slowest: float = 0.0  # seconds of the slowest mutant
    slowest_is: str = ""

    def run(self, mutant: int, shown: Any, check: Callable[[], str]) -> None:
        """Check one mutant."""
        began = time.perf_counter()
        try:
            self.counts[check()] += 1
        except Exception as error:  # whatever it is, it is what is looked for
            self.failed += 1
            if len(self.failures) < KEPT:
                what = f"{type(error).__name__}: {str(error)[:300]}"
                self.failures.append(f"{self.name} {mutant} of seed {self.seed}: {what}\n    {str(shown)[:600]!r}")
        took = time.perf_counter() - began
        if took > self.slowest:
            self.slowest, self.slowest_is = took, f"{self.name} {mutant}"

    def lines(self) -> Iterator[str]:
        """For people."""
        total = sum(self.counts.values()) + self.failed
        yield f"{self.name}: {total:,} mutants, seed {self.seed}, {self.failed} did not hold"
        yield f"    slowest {1000 * self.slowest:.0f} ms ({self.slowest_is})"
        for what, number in self.counts.most_common():
            yield f"    {number:>9,}  {what}"
        yield from self.failures


Tell = Callable[[str], None]


def texts(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Mutated failure texts: all are classified and decided, one in five goes the whole way to trail and task."""
    bases = seeds.texts()

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        text = mutator.text(mutator.random.choice(bases), bases)
        probe = mutator.random.choice(checks.PROBES)
        whole = mutator.random.random() < 0.2
        return text, lambda: checks.check_text(text, probe, whole=whole)

    return _run("texts", range(first, first + count), seed, each, tell)


def objects(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Mutated objects as an API server would send them, one in ten with damaged bytes."""
    bases = [(each["kind"], json.dumps(each)) for each in seeds.OBJECTS]

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        kind, text = mutator.random.choice(bases)
        data = dumps(mutator.value(text))
        if mutator.random.random() < 0.1:
            data = mutator.raw(data)
        probe = mutator.random.choice(checks.PROBES)
        return data[:2000], lambda: checks.check_object(kind, data, probe)

    return _run("objects", range(first, first + count), seed, each, tell)


def pods(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Lists of pods as protobuf: odd texts in them, most with damaged bytes."""
    bases = [each for each in seeds.OBJECTS if each["kind"] == "Pod"]

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        found = json.loads(json.dumps(bases * mutator.random.randint(1, 2)))
        for _ in range(mutator.random.randint(0, 3)):
            inside, key = mutator.random.choice(list(_texts(found)))
            inside[key] = mutator.text(inside[key]).encode("utf-8", "surrogatepass")
        body = pod_list({"metadata": {"resourceVersion": "1"}, "items": found})
        body = mutator.raw(body) if mutator.random.random() < 0.7 else body
        probe = mutator.random.choice(checks.PROBES)
        return body[:2000], lambda: checks.check_pods(body, probe)

    return _run("pods", range(first, first + count), seed, each, tell)


def _texts(found: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Every text of these pods, but for the times, which are numbers in protobuf."""
    stack: list[Any] = list(found)
    while stack:
        inside = stack.pop()
        for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            if isinstance(value, (dict, list)):
                stack.append(value)
            elif isinstance(value, str) and key != "creationTimestamp":
                yield inside, key


def documents(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Files for `remesh explain -f`: mutated objects and cases."""
    bases = [json.dumps(each) for each in (*seeds.OBJECTS, *seeds.cases())]

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        text = dumps(mutator.value(mutator.random.choice(bases))).decode()
        if mutator.random.random() < 0.1:
            text = mutator.text(text)
        return text[:2000], lambda: checks.check_document(text)

    return _run("documents", range(first, first + count), seed, each, tell)


def payloads(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Task payloads."""
    base = seeds.request().model_dump_json()

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        value = mutator.value(base)
        return str(value)[:2000], lambda: checks.check_payload(value)

    return _run("payloads", range(first, first + count), seed, each, tell)


def records(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Entries of the trail, and lines of an export."""
    bases = seeds.record_lines()

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        base = mutator.random.choice(bases)
        if mutator.random.random() < 0.5:
            text = dumps(mutator.value(base)).decode()
        else:
            text = mutator.text(base).encode("utf-8", "replace").decode()  # Redis gives no half characters
        if mutator.random.random() < 0.3:
            return text, lambda: checks.check_line(text)
        return text, lambda: checks.check_record(text)

    return _run("records", range(first, first + count), seed, each, tell)


def answers(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Bodies of answers that are no success."""
    status = {"kind": "Status", "message": "no", "reason": "Forbidden", "code": 403}
    details = {"name": "x", "kind": "pods", "retryAfterSeconds": 3, "causes": [{"reason": "a", "message": "b"}]}
    base = json.dumps({**status, "details": details})

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        body = dumps(mutator.value(base))
        if mutator.random.random() < 0.2:
            body = mutator.raw(body)
        code = mutator.random.choice((301, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504))
        return body, lambda: checks.check_answer(code, body)

    return _run("answers", range(first, first + count), seed, each, tell)


def files(count: int, seed: int, tell: Tell = lambda _: None, first: int = 0) -> Tally:
    """Policies, mesh profiles and kubeconfigs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "meshes").mkdir()
        return _run("files", range(first, first + count), seed, _file_maker(folder), tell)


def _file_maker(folder: Path) -> "Callable[[Mutator], tuple[Any, Callable[[], str]]]":
    policy = (seeds.ROOT / "config" / "policy.toml").read_text(encoding="utf-8")
    profiles = [each.read_text(encoding="utf-8") for each in sorted((seeds.ROOT / "config" / "meshes").glob("*.toml"))]
    kubeconfig = json.dumps(seeds.KUBECONFIG)

    def each(mutator: Mutator) -> tuple[Any, Callable[[], str]]:
        choice = mutator.random.randrange(3)
        if choice == 2:
            data = checks.as_yaml(mutator.value(kubeconfig))
            data = mutator.raw(data) if mutator.random.random() < 0.2 else data
            return data, lambda: "kubeconfig " + checks.check_kubeconfig(data, folder)
        base = policy if choice == 0 else mutator.random.choice(profiles).replace('name = "', 'name = "odd-', 1)
        text = mutator.text(base) if mutator.random.random() < 0.2 else mutator.lines(base)
        data = text.encode("utf-8", "surrogatepass")
        if choice == 0:
            return data, lambda: "policy " + checks.check_policy(data, folder)
        return data, lambda: "profile " + checks.check_profile(data, folder / "meshes")

    return each


ALL: dict[str, Callable[[int, int, Tell, int], Tally]] = {
    "texts": texts, "objects": objects, "pods": pods, "documents": documents, "payloads": payloads, "records": records,
    "answers": answers, "files": files,
}  # fmt: skip


def _run(
    name: str,
    numbers: range,
    seed: int,
    make: "Callable[[Mutator], tuple[Any, Callable[[], str]]]",
    tell: Tell,
) -> Tally:
    tally = Tally(name, seed)
    try:
        _run_all(tally, numbers, make, tell)
    except (KeyboardInterrupt, SystemExit):  # what is done by then is told
        tally.failures.append(f"ended early, of {len(numbers):,}")
        tally.failed += 1
    return tally


def _run_all(
    tally: Tally, numbers: range, make: "Callable[[Mutator], tuple[Any, Callable[[], str]]]", tell: Tell
) -> None:
    last = time.monotonic()
    for number in numbers:
        # Each mutant has a seed of its own, so that one can be made again without those before it.
        try:
            shown, check = make(Mutator(f"{tally.seed}/{tally.name}/{number}"))
        except RecursionError:
            tally.counts["too deep to be written"] += 1
            continue
        tally.run(number, shown, check)
        if time.monotonic() - last > TELL_SECONDS:
            last = time.monotonic()
            tell(f"{tally.name}: {number - numbers.start + 1:,} of {len(numbers):,}, {tally.failed} did not hold")
