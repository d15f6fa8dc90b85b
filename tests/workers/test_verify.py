"""Counting an owner's pods, and judging what the count says of a repair."""

import pytest

from remesh.kube.probe import ProbeResult
from remesh.models import Probe, Result
from remesh.objects import Pod
from tests.workers import doubles as d
from workers.verdicts import Verdict, from_probe
from workers.verify import Sight, Tally, judge, tally, watch


def has_sidecar(pod: Pod) -> bool:
    return any(each.name == "linkerd-proxy" for each in pod.spec.containers or ())


def count(wanted: int, *pods: Pod, before: tuple[str, ...] = ()) -> Tally:
    return tally(wanted, pods, marked=has_sidecar, before=before)


def test_only_marked_pods_from_after_the_nudge_are_its_work() -> None:
    seen = count(3, d.a_pod(0), d.a_pod(1), d.a_pod(2, ready=False), before=("uid-pod-0",))

    assert (seen.marked, seen.created, seen.ready, seen.missing) == (3, 2, 2, 0)


def test_a_bare_pod_is_held_against_the_repair_only_if_it_is_new() -> None:
    old = count(2, d.a_pod(0, marked=False), d.a_pod(1), before=("uid-pod-0",))
    new = count(2, d.a_pod(0, marked=False), d.a_pod(1))

    assert (old.older_bare, old.bare, old.healed) == (1, 0, True)
    assert (new.older_bare, new.bare, new.healed) == (0, 1, False)


def test_pods_that_have_ended_were_created_and_are_missing_again() -> None:
    seen = count(2, d.a_pod(0, phase="Failed", ready=False), d.a_pod(1))

    assert (seen.created, seen.marked, seen.missing) == (2, 1, 1)


def test_a_finished_job_has_healed() -> None:
    seen = count(0, d.a_pod(0, phase="Succeeded", ready=False))

    assert (seen.created, seen.healed) == (1, True)


@pytest.mark.parametrize(
    ("seen", "kind", "growing", "result", "code"),
    [
        (Tally(3, marked=3, ready=3, created=3), "ReplicaSet", False, Result.HEALED, "healed"),
        (Tally(3, marked=3, ready=1, created=3), "ReplicaSet", False, Result.INJECTED, "not_ready_yet"),
        (Tally(3), "ReplicaSet", False, Result.FAILED, "nothing_created"),
        (Tally(3), "ReplicaSet", True, Result.FAILED, "nothing_created"),
        (Tally(3, marked=1, ready=1, created=1), "ReplicaSet", False, Result.FAILED, "partly_created"),
        (Tally(900, marked=500, ready=1, created=500), "ReplicaSet", True, Result.INJECTED, "progressing"),
        (Tally(3, marked=1, created=1), "StatefulSet", False, Result.INJECTED, "progressing"),
        (Tally(2, marked=0, created=3), "Job", False, Result.INJECTED, "progressing"),
        (Tally(3, marked=2, ready=2, created=2, bare=1), "DaemonSet", True, Result.FAILED, "came_back_bare"),
    ],
)
def test_the_verdict_at_the_end_of_the_time(seen: Tally, kind: str, growing: bool, result: Result, code: str) -> None:
    verdict = judge(seen, kind, growing=growing, final=True)

    assert verdict is not None
    assert (verdict.result, verdict.code) == (result, code)


def test_before_the_end_only_a_clear_case_has_a_verdict() -> None:
    assert judge(Tally(3, marked=3, ready=2, created=3), "ReplicaSet", growing=False, final=False) is None
    assert judge(Tally(3), "ReplicaSet", growing=False, final=False) is None


def looking(*tallies: Tally, doubt: Verdict | None = None) -> tuple[Sight, list[str]]:
    """A sight that shows these, the last one for ever, and notes what was asked of it."""
    left, asked = list(tallies), []

    def look(anew: bool) -> Tally:
        asked.append("look")
        return left.pop(0) if len(left) > 1 else left[0]

    def ask() -> Verdict | None:
        asked.append("doubt")
        return doubt

    return Sight(look, ask, lambda seen: asked.append("progress"), d.StillClock()), asked


def test_watching_ends_as_soon_as_all_is_well() -> None:
    sight, asked = looking(Tally(2), Tally(2, marked=1, created=1), Tally(2, marked=2, ready=2, created=2))

    assert watch(sight, "ReplicaSet", 40).code == "healed"
    assert asked.count("look") == 3
    assert asked.count("progress") == 3
    assert "doubt" not in asked


def test_a_dry_run_says_why_nothing_comes_and_is_asked_seldom() -> None:
    sight, asked = looking(Tally(2))

    assert watch(sight, "ReplicaSet", 40).code == "nothing_created"
    assert asked.count("doubt") == 2


def test_an_injector_that_fails_again_ends_the_watching() -> None:
    again = Verdict(Result.WAITING, "webhook_timeout", "the dry run was refused")
    sight, asked = looking(Tally(2), doubt=again)

    assert watch(sight, "ReplicaSet", 40) == again
    assert sight.clock.monotonic() < 10
    assert asked.count("doubt") == 1


@pytest.mark.parametrize(
    ("seen", "at_quorum", "expected"),
    [
        (d.PASSES, False, None),
        (d.REFUSES, True, Result.WAITING),
        (d.DENIED, True, Result.REPORTED),
        (d.QUOTA, True, Result.REPORTED),
        (d.UNSUPPORTED, True, None),
        (d.UNSUPPORTED, False, Result.WAITING),
        (d.UNREACHABLE, True, Result.ERROR),
        (ProbeResult(Probe.UNKNOWN, 0.0, "no_right", "the right to dry-run pods is missing"), True, Result.ERROR),
        (ProbeResult(Probe.UNKNOWN, 0.0, "owner_gone", "the object is gone"), True, Result.OBSOLETE),
    ],
    ids=lambda value: getattr(value, "code", str(value)),
)
def test_what_a_dry_run_means(seen: ProbeResult, at_quorum: bool, expected: Result | None) -> None:
    verdict = from_probe(seen, at_quorum=at_quorum)

    assert (verdict.result if verdict else None) == expected
