"""May a bare pod go now, and would another one be injected? What `plan` asks besides the decision. Reads only.

The worker asks the same functions before it evicts (`workers.recreate_evict`), in the same order, so that `plan` says
what `repair` would do at this moment: replace it, or wait for its owner, for its share, for the brake or for a
PodDisruptionBudget. What other workers are doing is known where there is a ledger to ask (`remesh.cli.others`).
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from remesh.classify import classify
from remesh.cli.others import Others
from remesh.disruption import forbids, is_custom, share, stranger, unsettled
from remesh.errors import ClusterError, NotFound, Rejected, Throttled
from remesh.kube.api import Cluster
from remesh.kube.probe import ProbeResult, account_of
from remesh.meshes import MeshProfile
from remesh.models import ObjectRef, Result
from remesh.objects import Node, OwnerReference, Pod, Workload
from remesh.policy import Policy
from remesh.tally import active
from workers.recent import Recent
from workers.recreate_alone import not_whole
from workers.recreate_nodes import nowhere
from workers.recreate_proof import judge_all
from workers.recreate_share import goes_first, held_back, room
from workers.recreate_template import another_template
from workers.verdicts import Verdict, works_again_later

T = TypeVar("T")

BELIEVED_SECONDS: Final = 5.0  # one owner's pods are asked about one after the other, and share what was read of it


class Spare:
    """Asks for the pods of one cluster. Thread-safe."""

    def __init__(self, cluster: Cluster, policy: Policy, others: Others, waits: Callable[[Pod], bool]) -> None:
        """`waits` tells whether another pod of the same owner is to be replaced, too."""
        self._cluster = cluster
        self._rehearsal = Cluster(cluster.client, dry_run=True)
        self._policy = policy
        self._others = others
        self._waits = waits
        self._recent = Recent()

    def proof(self, ref: ObjectRef, sidecars: list[MeshProfile]) -> ProbeResult:
        """A dry run of a pod of `ref`'s template: its owner, or the pod itself. Every sidecar has to be there."""

        def ask() -> ProbeResult:
            account = account_of(ref.kind) if self._policy.repair.impersonate_controller else ""
            latency = self._policy.gate.latency_seconds
            answer = self._cluster.dry_run_pod(ref, timeout=latency + 1, impersonate=account)
            return judge_all(answer, sidecars, latency)

        names = tuple(profile.name for profile in sidecars)
        return self._recall(("proof", ref.namespace, ref.kind, ref.name, ref.uid, names), ask)

    def hindrance(self, pod: Pod, sidecars: list[MeshProfile]) -> Verdict | None:
        """Why it would not be evicted now, whatever a dry run says; None if it would. Raises ClusterError."""
        controller = pod.metadata.controller
        if controller is None:
            return self._whole(pod, sidecars)
        what, namespace = f"{controller.kind}/{controller.name}", pod.metadata.namespace
        try:
            owner = self._recall(("owner", controller.uid), lambda: self._cluster.owner(namespace, controller))
        except NotFound as error:
            return Verdict(Result.REPORTED, "owner_gone", f"nobody would put another pod in its place: {error}")
        if owner.spec.template is None:
            return Verdict(Result.REPORTED, "no_template", f"{what} has no pod template that a dry run could try")
        found = stranger(owner, pod, self._policy.repair)
        if found is not None:
            return Verdict(Result.REPORTED, *found)
        try:
            above = self._above(owner, namespace)
        except NotFound:
            return Verdict(Result.SKIPPED, "owner_unsettled", "what is above its ReplicaSet is gone")
        reason = unsettled(owner, above) or held_back(owner, pod)
        reason = reason or another_template(owner, above, pod, self._cluster.get_raw)
        if reason:
            return Verdict(Result.SKIPPED, "owner_unsettled", reason)
        reason = forbids(owner, above, self._policy.repair)
        if reason:
            return Verdict(Result.SKIPPED, "none_to_spare", reason)
        return self._later(owner, above, pod, sidecars)

    def at_last(self, pod: Pod, injector_key: str) -> Verdict | None:
        """What is asked right before the eviction, once the dry run has passed: a node, and the brake."""
        controller = pod.metadata.controller
        reason = nowhere(pod, controller.kind if controller else "", self._cluster, self._nodes)
        if reason:
            return Verdict(Result.SKIPPED, "no_node", reason)
        return self._others.brake(injector_key, pod.metadata.uid, self._cluster)

    def refusal(self, pod: Pod, ref: ObjectRef) -> Verdict | None:
        """Why the API server would not evict it now, by a dry run of the eviction; None if it would, or is not known.

        Without the right to evict it is not known: the workers have it, the person who plans need not.
        """
        try:
            self._rehearsal.evict(ref)
        except Throttled as error:
            return Verdict(Result.SKIPPED, "blocked_by_pdb", f"not now: {'; '.join(error.budgets) or error.message}")
        except Rejected as error:
            return self._rejected(error, pod)
        except ClusterError:
            return None
        return None

    def _rejected(self, error: Rejected, pod: Pod) -> Verdict:
        if "more than one PodDisruptionBudget" in error.message:
            names = ", ".join(self._cluster.budgets_of(pod))
            return Verdict(Result.REPORTED, "several_pdbs", f"several PodDisruptionBudgets select it: {names}")
        found = classify(error.message)
        if works_again_later(found):
            return Verdict(Result.WAITING, found.value, f"its eviction is refused, a webhook fails: {error}")
        return Verdict(Result.REPORTED, "eviction_refused", f"its eviction is refused: {error}")

    def _above(self, owner: Workload, namespace: str) -> Workload | None:
        controller = owner.metadata.controller
        if owner.kind != "ReplicaSet" or controller is None:
            return None
        return self._recall(("above", controller.uid), lambda: self._cluster.owner(namespace, controller))

    def _later(self, owner: Workload, above: Workload | None, pod: Pod, sidecars: list[MeshProfile]) -> Verdict | None:
        """Its turn and its owner's share."""
        uid = owner.metadata.uid
        pods: list[Pod] = self._recall(("pods", uid), lambda: self._cluster.pods_of(owner))
        others = (each for each in pods if active(each) and each.metadata.uid != pod.metadata.uid)
        first = goes_first(owner, pod, filter(self._waits, others)) if owner.kind == "StatefulSet" else None
        if first is not None:
            reason = f"{first.metadata.name} is replaced first, from the highest ordinal down"
            return Verdict(Result.SKIPPED, "not_its_turn", reason)
        limit, earlier = share(owner, above, self._policy.repair), self._others.slots(uid, pod.metadata.uid)
        if len(earlier) >= limit:
            reason = f"{limit} of its owner's pods are being replaced already, which is its share"
            return Verdict(Result.SKIPPED, "share_taken", reason)
        unproven = self._unproven(owner, pods)
        if unproven is not None:
            return unproven
        found = room(
            owner,
            above,
            self._policy.repair,
            pods,
            pod,
            earlier=earlier,
            marked=lambda each: all(profile.injected(each) for profile in sidecars),
        )
        if found.free:
            return None
        reason = f"{found.away} of its owner's pods are away already, and {found.limit} may be"
        return Verdict(Result.SKIPPED, "share_taken", reason)

    def _unproven(self, owner: Workload, pods: list[Pod]) -> Verdict | None:
        """Of a kind that is not Kubernetes' own it has to be seen that it creates pods at all."""
        if not is_custom(OwnerReference(kind=owner.kind, api_version=owner.api_version)):
            return None
        if self._others.seen(owner.metadata.uid, [each.metadata.uid for each in pods]) > 1:
            return None
        reason = f"{owner.kind}/{owner.metadata.name} was never seen with another pod than this one"
        return Verdict(Result.REPORTED, "custom_owner_unproven", reason)

    def _whole(self, pod: Pod, sidecars: list[MeshProfile]) -> Verdict | None:
        """Can one without a controller be created again from what is there?"""
        meta = pod.metadata
        raw = self._recall(("raw", meta.uid), lambda: self._cluster.get_raw("Pod", meta.namespace, meta.name))
        finalizers = [str(each) for each in raw["metadata"].get("finalizers") or ()]
        return not_whole(pod, finalizers, sidecars)

    def _nodes(self) -> list[Node]:
        return self._recall(("nodes",), self._cluster.nodes)

    def _recall(self, key: tuple[object, ...], ask: Callable[[], T]) -> T:
        return self._recent.recall(key, BELIEVED_SECONDS, ask, time.monotonic)
