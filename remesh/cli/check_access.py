"""Checks of the configuration, the API server and the rights. Used by `remesh.cli.checks`."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from remesh.cli.checks import Check, State, fail, failure, ok, skip, warn
from remesh.cli.session import Session, utc_now
from remesh.errors import RemeshError
from remesh.kube.probe import CONTROLLER_ACCOUNTS
from remesh.policy import Mode, Policy
from remesh.redisdb import CLOCK_SKEW_SECONDS
from watcher.leader import LEASE_NAME
from watcher.shard import parse_shard

RIGHT_THREADS = 8
_WATCHED = (
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("", "namespaces"),
    ("", "nodes"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("discovery.k8s.io", "endpointslices"),
)
# Read by itself, as it is now, before and after anything is done to it or to what it owns.
_READ = (
    ("", "namespaces"),
    ("", "pods"),
    ("", "nodes"),
    ("apps", "deployments"),
    ("batch", "cronjobs"),
)
_NUDGED = (
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("", "replicationcontrollers"),
    ("batch", "jobs"),
)


@dataclass(frozen=True, slots=True)
class Right:
    """One right, as RBAC names it."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    scoped: bool = False  # needed only where the policy's scope lets remesh act

    def __str__(self) -> str:
        name = self.resource + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.verb} {name}" + (f".{self.group}" if self.group else "")


OBSERVE = (
    *(Right(verb, group, resource) for group, resource in _WATCHED for verb in ("list", "watch")),
    *(Right("get", group, resource) for group, resource in (*_NUDGED, *_READ)),
    Right("create", "", "pods", scoped=True),  # for the dry run: RBAC does not tell one from the other
)
REPAIR = (
    *(Right("patch", group, resource, scoped=True) for group, resource in _NUDGED),
    Right("create", "", "pods", "eviction", scoped=True),
    Right("list", "policy", "poddisruptionbudgets"),
)
IMPERSONATE = tuple(
    Right("impersonate", "", "serviceaccounts", namespace="kube-system", name=name)
    for name in dict.fromkeys(CONTROLLER_ACCOUNTS.values())
)
_LEASES = ("coordination.k8s.io", "leases")
EVENTS = (Right("create", "", "events", scoped=True), Right("patch", "", "events", scoped=True))
_WORDS = {
    "rights-observe": "rights for mode observe",
    "rights-repair": "rights for mode repair",
    "rights-impersonate": "rights to impersonate controllers",
    "rights-events": "rights for Kubernetes Events",
    "rights-lease": "rights to the Lease of the leader",
}


def configuration(session: Session) -> Iterator[Check]:
    """Policy and mesh profiles can be read."""
    yield _tried("policy", lambda: f"policy: mode {session.policy.mode.value}")
    yield _tried("mesh-profiles", lambda: f"mesh profiles: {_names(session)}")


def _names(session: Session) -> str:
    return ", ".join(profile.name for profile in session.profiles.all)


def cluster(session: Session) -> list[Check]:
    """The API server answers, and agrees about the time. The first one says whether anything more can be asked."""
    reached = _tried("cluster-access", lambda: _reach(session))
    return [reached] if reached.failed else [reached, _clock(session)]


def _reach(session: Session) -> str:
    access = session.access
    return f"context {access.context} at {access.server}, Kubernetes {session.cluster.client.version()}"


def _clock(session: Session) -> Check:
    try:
        theirs = session.cluster.client.date()
    except RemeshError as error:
        return failure("cluster-clock", error)
    if theirs is None:
        return skip("cluster-clock", "not checked: the API server does not say what time it is")
    return clock_check(theirs, utc_now())


def clock_check(theirs: datetime, ours: datetime) -> Check:
    """Judge the API server's clock, which tells whole seconds."""
    ahead = (theirs - ours).total_seconds() + 0.5
    if abs(ahead) <= CLOCK_SKEW_SECONDS:
        return ok("cluster-clock", f"the API server's clock agrees with ours within {CLOCK_SKEW_SECONDS:g} s")
    return warn("cluster-clock", f"the API server's clock differs from ours by {ahead:+.0f} s: ages are misleading")


def rights(session: Session) -> list[Check]:
    """What RBAC grants whoever asks, by mode. The rights of watcher and workers are their own ServiceAccounts'."""
    wanted = needed(session)
    try:
        with ThreadPoolExecutor(RIGHT_THREADS) as pool:
            granted = {name: list(pool.map(lambda right: _may(session, right), each)) for name, each in wanted.items()}
    except RemeshError as error:
        return [failure("rights-observe", error)]
    return [_rights(name, each, granted[name], session.policy) for name, each in wanted.items()]


def needed(session: Session) -> dict[str, tuple[Right, ...]]:
    """What watcher and workers need with these settings and this policy, by name of the check."""
    settings = session.settings
    wanted = {"rights-observe": OBSERVE, "rights-repair": REPAIR}
    if session.policy.repair.impersonate_controller:
        wanted["rights-impersonate"] = IMPERSONATE
    if settings.kubernetes_events:
        wanted["rights-events"] = EVENTS
    if settings.leader_election:
        place = settings.lease_namespace or os.environ.get("POD_NAMESPACE") or session.access.namespace
        named = (Right(verb, *_LEASES, "", place, lease_name(settings.shard)) for verb in ("get", "update"))
        wanted["rights-lease"] = (Right("create", *_LEASES, "", place), *named)
    return wanted


def lease_name(shard: str | None) -> str:
    """Of the whole cluster's watchers, or of the shard's `i/N`."""
    part = parse_shard(shard)
    return LEASE_NAME if part.is_whole else f"{LEASE_NAME}-{part.index}"


def _may(session: Session, right: Right) -> bool:
    """In the policy's namespaces where it names some: such rights are then bound there and not in the cluster."""
    scope = session.policy.scope.namespaces if right.scoped else ()
    places = scope or (right.namespace or None,)
    ask = session.cluster.can_i
    return all(
        ask(right.verb, right.group, right.resource, each, right.subresource or None, name=right.name or None)
        for each in places
    )


def _rights(name: str, wanted: tuple[Right, ...], granted: list[bool], policy: Policy) -> Check:
    what = _WORDS[name]
    missing = [str(right) for right, has in zip(wanted, granted, strict=True) if not has]
    if not missing:
        return ok(name, f"{what}: all {len(wanted)}")
    text = f"{what}: missing {', '.join(missing)}"
    if name == "rights-repair" and policy.mode is Mode.OBSERVE:
        return warn(name, text, hint="not needed while the policy's mode is observe")
    return fail(name, text, exit_code=4)


def _tried(check: str, ask: Callable[[], str]) -> Check:
    try:
        return ok(check, ask())
    except RemeshError as error:
        return Check(check, State.FAILED, str(error), exit_code=error.exit_code)
