"""What must hold at every moment, judged by rules of the machine's own and not by the product's.

Who may be evicted is told by what the machine itself wrote on the pods when it made their owners (`FLAVOUR`, and the
meshes that the namespace asks); what was proven, by the dry runs that the cluster answered.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from remesh.kube.decode import decode_object
from remesh.ledger import Ledger
from remesh.models import AuditRecord, RecordType, RepairRequest
from remesh.policy import Mode, Policy
from remesh.sim import resources as res
from remesh.sim.objects import Obj, is_active, is_ready, is_terminating
from remesh.sim.routes import locate
from remesh.sim.selectors import label_selector
from remesh.sim.store import full_body
from tests.machine.cluster import NODES, Door, MachineCluster, sidecars_of
from workers.nudge import NUDGE_ANNOTATION

FLAVOUR: Final = "machine/flavour"  # annotation: plain, out, host or mirror
PROVEN_SECONDS: Final = 12.0  # a proof may be five seconds old, and dry runs take three
ASKS: Final = {
    "shop": frozenset({"linkerd"}),
    "bank": frozenset({"istio"}),
    "both": frozenset({"linkerd", "istio"}),
    "plain": frozenset(),
    "kube-system": frozenset({"linkerd"}),
}
"""Meshes that the namespaces ask for."""
PROTECTED: Final = ("kube-system",)
OWNERS: Final = (res.REPLICA_SETS, res.REPLICATION_CONTROLLERS, res.STATEFUL_SETS, res.DAEMON_SETS, res.JOBS)


def wanted(pod: Obj) -> frozenset[str]:
    """Sidecars that a pod should have."""
    flavour = (pod["metadata"].get("annotations") or {}).get(FLAVOUR, "plain")
    return ASKS.get(pod["metadata"]["namespace"], frozenset()) if flavour == "plain" else frozenset()


def lacks(expected: frozenset[str], there: frozenset[str]) -> bool:
    """Linkerd's injector passes over pods that carry Istio's proxy already, so that one is then not missed."""
    return bool(expected - there - ({"linkerd"} if "istio" in there else set()))


def bare(pod: Obj) -> bool:
    return lacks(wanted(pod), sidecars_of(pod))


@dataclass
class Eviction:
    """One that the API server carried out."""

    pod: Obj
    owner: str
    at: float
    known: frozenset[str]  # UIDs of the owner's pods then


@dataclass
class Judge:
    """Sees every write and every record."""

    cluster: MachineCluster
    policy: Policy
    ledger: Ledger
    violations: list[str] = field(default_factory=list)
    records: list[AuditRecord] = field(default_factory=list)
    writes: list[tuple[str, str, str]] = field(default_factory=list)  # verb, namespace, name
    evictions: list[Eviction] = field(default_factory=list)
    flight: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    most_in_flight: int = 0
    found: dict[str, int] = field(default_factory=dict)  # what happened, for the figures
    _ids: set[str] = field(default_factory=set)
    _chains: dict[str, list[AuditRecord]] = field(default_factory=dict)
    _before: Obj | None = None

    def wrong(self, what: str) -> None:
        self.violations.append(f"at {self.cluster.clock.passed:.1f} s: {what}")

    def count(self, what: str) -> None:
        self.found[what] = self.found.get(what, 0) + 1

    # Records

    def noted(self, record: AuditRecord) -> None:
        if record.record_id in self._ids:
            return
        self._ids.add(record.record_id)
        self.records.append(record)
        if not record.finding_id:
            return
        chain = self._chains.setdefault(record.finding_id, [])
        self._in_order(chain, record)
        chain.append(record)
        if record.type is RecordType.OUTCOME:
            self.count(f"outcome {record.details.get('result')}: {record.code}")
            self.flight.pop(record.finding_id, None)
        elif record.code == "no_outcome":
            self.flight.pop(record.finding_id, None)

    def _in_order(self, chain: list[AuditRecord], record: AuditRecord) -> None:
        kinds = [each.type for each in chain]
        if not chain and record.type is not RecordType.FINDING:
            self.wrong(f"{record.finding_id} begins with {record.type.value} ({record.code})")
        if record.type is RecordType.ACTION and RecordType.INTENT not in kinds:
            self.wrong(f"{record.finding_id}: an action without an intent")
        if record.type is RecordType.INTENT and RecordType.DECISION not in kinds:
            self.wrong(f"{record.finding_id}: an intent without a decision")
        if any(each.actor == record.actor and each.at > record.at for each in chain):
            self.wrong(f"{record.finding_id}: {record.type.value} is older than what {record.actor} wrote before")

    # What a pod should have, under the webhooks of now, and under those of a moment ago

    def _expected(self, pod: Obj) -> list[frozenset[str]]:
        app = (pod["metadata"].get("labels") or {}).get("app", "")
        cluster, moments = self.cluster, [self.cluster.unseen]
        if cluster.clock.passed - cluster.webhooks_changed <= PROVEN_SECONDS:
            moments.append(cluster.unseen_before)
        return [wanted(pod) - {mesh for mesh, out in unseen if out == app} for unseen in moments]

    # Releases

    def sent(self, request: RepairRequest, gate: str, cost: int, window: int, deadline: float) -> None:
        now = self.cluster.clock.passed
        if self.policy.mode is Mode.OBSERVE:
            self.wrong(f"a task was sent in mode observe: {request.ref}")
        if not gate:
            return
        self.flight = {key: row for key, row in self.flight.items() if row[2] > now}
        others = sum(pods for key, (of, pods, _) in self.flight.items() if of == gate and key != request.finding_id)
        if others and others + cost > window:
            self.wrong(
                f"{others} pods are on their way through {gate}, {cost} more were let go, the window is {window}"
            )
        self.flight[request.finding_id] = (gate, cost, now + deadline)
        self.most_in_flight = max(self.most_in_flight, others + cost)

    # Writes

    def wrote(self, door: Door, when: str, method: str, path: str, data: bytes, answer: bytes) -> None:
        target = locate(path)
        body = msgspec.json.decode(data) if data else {}
        if target.subresource == "eviction":
            self._evicts(door, when, target.namespace, target.name, body)
        elif method == "PATCH":
            self._annotates(when, target.resource.kind, target.namespace, target.name, body)
        elif method == "POST" and target.resource is res.PODS:
            self._creates(when, target.namespace, body)
        else:
            self.wrong(f"an unknown write: {method} {path}")
        if self.policy.mode is Mode.OBSERVE:
            self.wrong(f"a write in mode observe: {method} {path}")
        if target.namespace in PROTECTED:
            self.wrong(f"a write in a protected namespace: {method} {path}")

    def _intent(self, suits: Callable[[AuditRecord], bool]) -> AuditRecord | None:
        """The intent that covers a write: not ended by an outcome of a task since."""
        for record in reversed(self.records):
            if record.type is RecordType.INTENT and suits(record):
                ended = [
                    each
                    for each in self._chains[record.finding_id]
                    if each.type is RecordType.OUTCOME and each.task_id == record.task_id
                ]
                return None if ended else record
        return None

    def _creates(self, when: str, namespace: str, body: Obj) -> None:
        name = body["metadata"].get("name", "")
        self.writes.append(("create", namespace, name))
        intent = self._intent(lambda each: each.code == "recreate" and each.ref is not None and each.ref.name == name)
        if intent is None:
            self.wrong(f"pod {namespace}/{name} was created without an intent")
        if when == "after":
            self.count("created")

    def _annotates(self, when: str, kind: str, namespace: str, name: str, body: Obj) -> None:
        metadata = body.get("metadata", {})
        if set(body) != {"metadata"} or set(metadata.get("annotations", {})) != {NUDGE_ANNOTATION}:
            self.wrong(f"more than the nudge was written: {body}")
        uid, on = metadata.get("uid"), metadata["annotations"][NUDGE_ANNOTATION] is not None
        codes = ("nudge",) if on else ("nudge", "cleanup")
        intent = self._intent(lambda each: each.code in codes and each.ref is not None and each.ref.uid == uid)
        self.writes.append(("annotate", namespace, name))
        if intent is None:
            self.wrong(f"{kind} {namespace}/{name} was annotated without an intent ({'on' if on else 'off'})")
        elif on:
            self._quarantine(str(uid), intent, f"{kind} {namespace}/{name} was nudged")
        if when == "after" and on:
            self.count("nudged")

    def _evicts(self, door: Door, when: str, namespace: str, name: str, body: Obj) -> None:
        uid = body.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        intent = self._intent(
            lambda each: each.code in ("evict", "recreate") and each.ref is not None and each.ref.uid == uid
        )
        if intent is None:
            self.wrong(f"pod {namespace}/{name} was to be evicted without an intent")
        if when == "before":
            stored = self.cluster.store.get(res.PODS, namespace, name)
            self._before = stored.obj if stored else None
            return
        pod = self._before
        assert pod is not None
        if pod["metadata"]["uid"] != uid:
            self.wrong(f"another pod than the one that was meant was evicted: {namespace}/{name}")
        self.writes.append(("evict", namespace, name))
        self.count("evicted")
        self._may_go(pod)
        self._was_proven(door.who, pod)
        self._budget(pod)
        owner = next((each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller")), None)
        account = owner["uid"] if owner else f"pod:{namespace}:{name}"
        if intent is not None:
            self._quarantine(account, intent, f"pod {namespace}/{name} was evicted")
        known = (
            frozenset(each["metadata"]["uid"] for each in self.cluster.pods_of(owner["uid"])) if owner else frozenset()
        )
        self.evictions.append(Eviction(pod, account, self.cluster.clock.passed, known))
        if owner is not None and is_ready(pod):
            self._share(owner, pod)

    def _may_go(self, pod: Obj) -> None:
        metadata, name = pod["metadata"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if any(each.pod["metadata"]["uid"] == metadata["uid"] for each in self.evictions):
            self.wrong(f"evicted twice: {name}")
        if not any(lacks(expected, sidecars_of(pod)) for expected in self._expected(pod)):
            flavour = (metadata.get("annotations") or {}).get(FLAVOUR, "")
            self.wrong(f"evicted, and lacks nothing: {name} ({flavour}, has {sorted(sidecars_of(pod))})")
        if is_terminating(pod) or pod["status"].get("phase") in ("Succeeded", "Failed"):
            self.wrong(f"evicted, and was over already: {name}")
        owners = [each["kind"] for each in metadata.get("ownerReferences") or () if each.get("controller")]
        repair = self.policy.repair
        if (not owners and not repair.bare_pods) or ("Job" in owners and not repair.job_pods):
            self.wrong(f"evicted without the policy's word: {name} of {owners or 'nobody'}")

    def _was_proven(self, who: str, pod: Obj) -> None:
        now, app = self.cluster.clock.passed, (pod["metadata"].get("labels") or {}).get("app")
        own = [
            each
            for each in self.cluster.dry_runs
            if each.who == who and each.app == app and each.namespace == pod["metadata"]["namespace"]
        ]
        recent = [each for each in own if now - each.at <= PROVEN_SECONDS]
        fresh = [each for each in recent if not all(lacks(expected, each.sidecars) for expected in self._expected(pod))]
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if not fresh:
            self.wrong(f"evicted without a dry run of {who} that came back with its sidecars: {name}")
            return
        changed_since = now - self.cluster.webhooks_changed <= PROVEN_SECONDS
        if not changed_since and all(each.version != self.cluster.webhooks_version for each in fresh):
            self.wrong(f"proven under another webhook configuration than that of now: {name}")

    def _budget(self, pod: Obj) -> None:
        if not is_ready(pod):
            return
        for item in self.cluster.store.objects(res.DISRUPTION_BUDGETS, pod["metadata"]["namespace"]):
            selects = label_selector(item.obj["spec"]["selector"])
            if not selects(pod["metadata"].get("labels") or {}):
                continue
            pods = [each for each in self.cluster.pods() if selects(each["metadata"].get("labels") or {})]
            ready = sum(
                1
                for each in pods
                if is_ready(each) and is_active(each) and each["metadata"]["uid"] != pod["metadata"]["uid"]
            )
            if ready < item.obj["spec"]["minAvailable"]:
                self.wrong(f"the budget {item.obj['metadata']['name']} was broken by {pod['metadata']['name']}")

    def _share(self, reference: dict[str, Any], pod: Obj) -> None:
        owner = self.cluster.owner_of(reference, pod["metadata"]["namespace"])
        if owner is None:
            return
        desired, limit = desired_of(reference["kind"], owner), 0
        limit = share_of(reference["kind"], owner, desired, self.policy)
        ready = [each for each in self.cluster.pods_of(reference["uid"]) if is_ready(each) and is_active(each)]
        ready = [each for each in ready if each["metadata"]["uid"] != pod["metadata"]["uid"]]
        ours = [each for each in self.evictions if each.owner == reference["uid"] and is_ready(each.pod)]
        new = {each["metadata"]["uid"] for each in ready}
        unreplaced = 0
        for eviction in ours:
            came = next((uid for uid in sorted(new) if uid not in eviction.known), None)
            if came is None:
                unreplaced += 1
            else:
                new.discard(came)
        away = min(unreplaced, max(0, desired - len(ready)))
        if away > limit:
            name = f"{reference['kind']} {pod['metadata']['namespace']}/{reference['name']}"
            self.wrong(f"{away} of {desired} pods of {name} are away because of remesh, its share is {limit}")

    def _quarantine(self, uid: str, intent: AuditRecord, what: str) -> None:
        template = str(intent.details.get("template_hash") or self._template(uid))
        for held in self.ledger.quarantines():
            if (held.uid, held.template_hash) != (uid, template):
                continue
            decisions = [
                each
                for each in self._chains[intent.finding_id]
                if each.type is RecordType.DECISION and each.task_id == intent.task_id
            ]
            if decisions and held.since < decisions[0].at:
                self.wrong(f"{what} in quarantine since {held.since}")

    def _template(self, uid: str) -> str:
        for resource in OWNERS:
            for item in self.cluster.store.objects(resource):
                if item.obj["metadata"]["uid"] == uid:
                    return str(decode_object(resource.kind, full_body(resource, item)).template_hash)
        return ""

    # The end

    def chains(self) -> dict[str, list[AuditRecord]]:
        return self._chains

    def ended(self, goes_on: Callable[[str], bool]) -> list[str]:
        """What does not hold once all is quiet. `goes_on` names objects whose chains may."""
        found = []
        for key, chain in self._chains.items():
            if chain[0].ref is not None and goes_on(chain[0].ref.name):
                continue
            last = max((i for i, r in enumerate(chain) if r.type is RecordType.INTENT), default=-1)
            after = [each.type for each in chain[last + 1 :]]
            closes = RecordType.OUTCOME in after or (last < 0 and RecordType.REFUSAL in after)
            if not closes:
                found.append(f"{key} ({chain[0].ref}) has no end: {[f'{r.type.value} {r.code}' for r in chain][-6:]}")
        for resource in OWNERS:
            for item in self.cluster.store.objects(resource):
                value = (item.obj["metadata"].get("annotations") or {}).get(NUDGE_ANNOTATION)
                if value is not None:
                    found.append(f"a nudge was left on {resource.kind} {item.obj['metadata']['name']}")
        return found


def desired_of(kind: str, owner: Obj) -> int:
    if kind == "DaemonSet":
        return NODES
    return int(owner["spec"].get("parallelism" if kind == "Job" else "replicas", 1))


def share_of(kind: str, owner: Obj, desired: int, policy: Policy) -> int:
    """Pods that may be away, as docs/concepts.md says."""
    if kind == "StatefulSet":
        return 1
    if policy.repair.share is not None:
        return max(1, int(desired * policy.repair.share))
    return 1 if kind == "DaemonSet" else max(1, desired // 4)
