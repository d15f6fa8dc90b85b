"""The checks of `remesh check`. Each asks one thing and says what it found; none writes anything."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remesh.cli.session import Session
from remesh.cli.text import count, one_line
from remesh.cli.trials import Trials
from remesh.errors import BrokerUnreachable, RemeshError
from remesh.meshes import MeshProfile
from remesh.models import Probe
from remesh.objects import Webhook
from remesh.policy import Mode
from remesh.redisdb import BrokerReport, check_broker

DRY_RUN_SAFE = ("None", "NoneOnDryRun")  # sideEffects with which the API server allows a dry run
RIGHT_THREADS = 8
WORKER_SECONDS = 1.5  # a worker that is up answers a ping within milliseconds
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
_NUDGED = (
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("", "replicationcontrollers"),
    ("batch", "jobs"),
)


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


_MARKS = {State.OK: "✓", State.WARNING: "!", State.FAILED: "✗", State.SKIPPED: "-"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was asked."""

    group: str
    name: str
    state: State
    text: str
    hint: str = ""
    exit_code: int = 1  # for the process, if it failed

    @property
    def failed(self) -> bool:
        """True if remesh cannot work like this."""
        return self.state is State.FAILED

    @property
    def mark(self) -> str:
        """A tick, a cross, a warning or a dash."""
        return _MARKS[self.state]

    def document(self) -> dict[str, Any]:
        """For JSON and YAML."""
        return {
            "group": self.group,
            "name": self.name,
            "state": self.state.value,
            "text": self.text,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Right:
    """One right and which mode needs it."""

    mode: Mode
    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


RIGHTS = [
    *(Right(Mode.OBSERVE, verb, group, resource) for group, resource in _WATCHED for verb in ("list", "watch")),
    *(Right(Mode.OBSERVE, "get", group, resource) for group, resource in (*_NUDGED, ("", "namespaces"))),
    Right(Mode.OBSERVE, "create", "", "pods"),  # for the dry run: RBAC does not tell one from the other
    *(Right(Mode.REPAIR, "patch", group, resource) for group, resource in _NUDGED),
]


class Checks:
    """All checks of one session, in the order in which they build on each other."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self) -> list[Check]:
        """Every check; what cannot be asked because an earlier one failed is said to be skipped."""
        found = list(self._configuration())
        found += self._cluster()
        found += self._broker()
        return found

    # Configuration

    def _configuration(self) -> Iterator[Check]:
        group = "Configuration"
        yield self._try(group, "policy", lambda: f"policy: mode {self._session.policy.mode.value}")
        yield self._try(group, "meshes", lambda: f"mesh profiles: {_names(self._session.profiles.all)}")

    def _try(self, group: str, name: str, ask: Callable[[], str]) -> Check:
        try:
            return Check(group, name, State.OK, ask())
        except RemeshError as error:
            return _failure(group, name, error)

    # Cluster

    def _cluster(self) -> list[Check]:
        group = "Cluster"
        reached = self._try(group, "access", self._reach)
        if reached.failed:
            skipped = [
                Check(each, "", State.SKIPPED, "not asked: the cluster cannot be used") for each in _CLUSTER_GROUPS
            ]
            return [reached, *skipped]
        return [reached, *self._rights(), *self._injectors()]

    def _reach(self) -> str:
        access = self._session.access
        version = self._session.cluster.client.version()
        return f"context {access.context} at {access.server}, Kubernetes {version}"

    def _rights(self) -> list[Check]:
        try:
            with ThreadPoolExecutor(RIGHT_THREADS) as pool:
                granted = list(pool.map(self._may, RIGHTS))
        except RemeshError as error:
            return [_failure("Rights", "rights", error)]
        answers = list(zip(RIGHTS, granted, strict=True))
        return [self._mode(mode, [(right, ok) for right, ok in answers if right.mode is mode]) for mode in Mode]

    def _may(self, right: Right) -> bool:
        return self._session.cluster.can_i(right.verb, right.group, right.resource)

    def _mode(self, mode: Mode, answers: list[tuple[Right, bool]]) -> Check:
        name = f"rights for mode {mode.value}"
        missing = [str(right) for right, ok in answers if not ok]
        if not missing:
            return Check("Rights", name, State.OK, f"{name}: all {len(answers)}")
        text = f"{name}: missing {', '.join(missing)}"
        if mode is Mode.REPAIR and self._session.policy.mode is Mode.OBSERVE:
            return Check("Rights", name, State.WARNING, text, "not needed while the policy's mode is observe")
        hint = "grant them by a ClusterRole and a ClusterRoleBinding"
        return Check("Rights", name, State.FAILED, text, hint, exit_code=4)

    def _injectors(self) -> list[Check]:
        group = "Injectors"
        try:
            webhooks = self._session.cluster.webhooks()
        except RemeshError as error:
            return [_failure(group, "webhooks", error)]
        known = [(configuration, webhook, self._profile(configuration, webhook)) for configuration, webhook in webhooks]
        found = [self._injector(name, webhook, profile) for name, webhook, profile in known if profile is not None]
        others = len(webhooks) - len(found)
        if not found:
            text = f"no injector among {count(len(webhooks), 'mutating webhook')}"
            hint = "install a mesh, or describe its webhook in a profile in the folder given with --meshes"
            return [Check(group, "webhooks", State.WARNING, text, hint)]
        found += self._dry_runs([(webhook, profile) for _, webhook, profile in known if profile is not None])
        more = (
            [Check(group, "others", State.OK, f"{count(others, 'other mutating webhook')}, not of a mesh")]
            if others
            else []
        )
        return found + more

    def _dry_runs(self, known: list[tuple[Webhook, MeshProfile]]) -> list[Check]:
        """One live dry run an injector: ready endpoints prove nothing."""
        injectors: dict[tuple[str, str], list[Webhook]] = {}
        profiles: dict[tuple[str, str], MeshProfile] = {}
        for webhook, profile in known:
            service = webhook.client_config.service
            key = (profile.name, f"{service.namespace}/{service.name}" if service else "")
            injectors.setdefault(key, []).append(webhook)
            profiles[key] = profile
        try:
            namespaces = self._session.cluster.list("Namespace")
        except RemeshError as error:
            return [_failure("Injectors", "dry run", error)]
        trials = Trials(self._session, namespaces)
        return [self._dry_run(trials, profiles[key], webhooks, key[1]) for key, webhooks in injectors.items()]

    def _dry_run(self, trials: Trials, profile: MeshProfile, webhooks: list[Webhook], service: str) -> Check:
        group, name = "Injectors", f"dry run {profile.name} {service}".rstrip()
        head = f"{profile.name}: dry run" + (f" through {service}" if service else "")
        if any(webhook.side_effects not in DRY_RUN_SAFE for webhook in webhooks):
            return Check(group, name, State.SKIPPED, f"{head}: not asked, its webhook declares side effects")
        trial = trials.ask(profile, webhooks)
        if trial is None:
            return Check(group, name, State.SKIPPED, f"{head}: not asked, no namespace asks for {profile.title} yet")
        text = one_line(f"{head} in namespace {trial.namespace}: {trial.result.reason}")
        if trial.result.message:
            text = one_line(f"{text} ({trial.result.message})")
        if trial.result.probe is Probe.PASSES:
            return Check(group, name, State.OK, text)
        if trial.conclusive:
            return Check(group, name, State.FAILED, text, "pods that it is asked for are refused or come up bare now")
        return Check(group, name, State.WARNING, text, "this says nothing about the injector")

    def _profile(self, configuration: str, webhook: Webhook) -> MeshProfile | None:
        return self._session.profiles.for_webhook(configuration, webhook)

    def _injector(self, configuration: str, webhook: Webhook, profile: MeshProfile) -> Check:
        group, name = "Injectors", f"{configuration}/{webhook.name}"
        head = f"{profile.name}: {name}, failurePolicy {webhook.failure_policy}"
        if webhook.side_effects not in DRY_RUN_SAFE:
            text = f"{head}: sideEffects {webhook.side_effects}, so the API server refuses dry runs"
            return Check(group, name, State.WARNING, text, "readiness and one canary repair prove it instead")
        service = webhook.client_config.service
        if service is None:
            return Check(group, name, State.OK, f"{head}, by URL")
        try:
            ready = self._session.cluster.endpoints(service.namespace, service.name)
        except RemeshError as error:
            return _failure(group, name, error)
        text = f"{head}, {ready.ready} of {count(ready.total, 'endpoint')} ready"
        if ready.ready < self._session.policy.gate.quorum:
            hint = (
                f"see `kubectl -n {service.namespace} get endpointslices -l kubernetes.io/service-name={service.name}`"
            )
            return Check(group, name, State.WARNING, text, hint)
        return Check(group, name, State.OK, text)

    # Broker

    def _broker(self) -> list[Check]:
        group = "Broker"
        try:
            report = check_broker(self._session.redis)
        except RemeshError as error:
            if isinstance(error, BrokerUnreachable) and not self._session.names_redis:
                hint = "for one that stays, start it with AOF and noeviction, and set REMESH_REDIS_URL"
                return [
                    Check(group, "redis", State.WARNING, "none yet; `remesh run` brings its own", hint),
                    Check("Workers", "", State.SKIPPED, "not asked: there is no Redis yet"),
                ]
            hint = "start one with AOF and noeviction, set REMESH_REDIS_URL, or use `remesh run`, which brings its own"
            return [
                _failure(group, "redis", error, hint),
                Check("Workers", "", State.SKIPPED, "not asked: Redis cannot be used"),
            ]
        return [*self._safety(group, report), self._trail(group), *self._workers()]

    def _safety(self, group: str, report: BrokerReport) -> list[Check]:
        what = f"{report.server} {report.version}"
        found = [Check(group, "redis", State.OK, f"{report.place}: {what}")]
        allowed = self._session.settings.allow_unsafe_broker
        state = State.WARNING if allowed else State.FAILED
        found += [Check(group, "safety", state, problem, exit_code=5) for problem in report.problems]
        if not report.problems:
            found.append(Check(group, "safety", State.OK, "append-only file on, no key is ever evicted"))
        found += [Check(group, "load", State.WARNING, warning) for warning in report.warnings]
        return found

    def _trail(self, group: str) -> Check:
        return self._try(group, "trail", lambda: f"audit trail: {count(self._session.trail.length(), 'record')}")

    def _workers(self) -> list[Check]:
        from kombu.exceptions import KombuError
        from redis.exceptions import RedisError

        hint = "start one: celery -A workers.app worker --pool threads -E; or `remesh run`"
        try:
            answers = self._session.app.control.ping(timeout=WORKER_SECONDS)
        except (KombuError, RedisError, OSError, RuntimeError) as error:
            return [Check("Workers", "workers", State.FAILED, one_line(f"no ping: {error}"), exit_code=5)]
        if not answers:
            return [Check("Workers", "workers", State.WARNING, "no worker answers", hint)]
        names = sorted(name for answer in answers for name in answer)
        return [Check("Workers", "workers", State.OK, f"{count(len(names), 'worker')}: {', '.join(names)}")]


_CLUSTER_GROUPS = ("Rights", "Injectors")


def _failure(group: str, name: str, error: RemeshError, hint: str = "") -> Check:
    return Check(group, name, State.FAILED, one_line(str(error)), hint, exit_code=error.exit_code)


def _names(profiles: Any) -> str:
    return ", ".join(profile.name for profile in profiles)
