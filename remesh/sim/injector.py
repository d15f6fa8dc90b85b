"""The sidecar injector that stands behind its Service, with a switchboard of faults."""

import threading
from dataclasses import dataclass, field

from remesh.sim.admission import Answer, CallFailed, Endpoint, Review
from remesh.sim.objects import Obj, annotations_of, copy, labels_of
from remesh.testbed import DRY_RUN_ONLY, Fault, InjectorWear

DENIAL = "the injector was told to deny"
SERVER_ERROR = "the injector was told to fail"


@dataclass
class Injector:
    """Every replica of it. `faults` and `lost_nodes` decide how a call ends; changing them wakes who hangs."""

    wear: InjectorWear
    ca_bundle: str
    faults: set[Fault] = field(default_factory=set)
    lost_nodes: set[str] = field(default_factory=set)
    delay_seconds: float = 0.0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def break_by(self, fault: Fault, delay_seconds: float = 0.0) -> None:
        """Add a fault, seen by calls that wait, too."""
        with self._changed:
            self.faults.add(fault)
            if fault is Fault.SLOW:
                self.delay_seconds = delay_seconds
            self._changed.notify_all()

    def lose_node(self, node: str) -> None:
        """No answer any more from the replica on this node."""
        with self._changed:
            self.lost_nodes.add(node)

    def heal(self) -> None:
        """End all faults; calls that hang are answered."""
        with self._changed:
            self.faults.clear()
            self.lost_nodes.clear()
            self.delay_seconds = 0.0
            self._changed.notify_all()

    def call(self, endpoint: Endpoint, review: Review, ca_bundle: str, seconds: float) -> Answer:
        """Answer as a webhook server would within `seconds`. Raises CallFailed."""
        self._reach(endpoint, ca_bundle, seconds)
        if Fault.ERROR_500 in self.faults:
            text = f'an error on the server ("{SERVER_ERROR}") has prevented the request from succeeding'
            raise CallFailed(text, keeps_connection=True, is_response=True)
        if Fault.DENYING in self.faults:
            return Answer(False, review.obj, DENIAL, 403)
        if Fault.NOT_INJECTING in self.faults:
            return Answer(True, review.obj)
        if is_dry_run_only(review.obj) and not review.attributes.dry_run:
            return Answer(True, review.obj)
        if not _may_create(self.wear, review.attributes.user):
            return Answer(True, review.obj)
        return Answer(True, inject(self.wear, review.obj, review.namespace))

    def _reach(self, endpoint: Endpoint, ca_bundle: str, seconds: float) -> None:
        with self._changed:
            if Fault.KILLED in self.faults:
                raise _refused(endpoint)
            # A frozen process answers late what it was asked, when it goes on in time.
            if not self._changed.wait_for(lambda: not self._hangs(endpoint), timeout=seconds):
                raise CallFailed("context deadline exceeded", keeps_connection=True)
            if Fault.KILLED in self.faults:
                raise CallFailed("EOF")
            if ca_bundle != self.ca_bundle:
                raise CallFailed("tls: failed to verify certificate: x509: certificate signed by unknown authority")
            if Fault.SLOW in self.faults:
                self._dawdle(seconds)

    def _hangs(self, endpoint: Endpoint) -> bool:
        if Fault.KILLED in self.faults:
            return False
        return Fault.FROZEN in self.faults or endpoint.node in self.lost_nodes

    def _dawdle(self, seconds: float) -> None:
        delay = self.delay_seconds
        healed = self._changed.wait_for(lambda: Fault.SLOW not in self.faults, timeout=min(delay, seconds))
        if not healed and delay >= seconds:
            raise CallFailed("context deadline exceeded", keeps_connection=True)


def _refused(endpoint: Endpoint) -> CallFailed:
    return CallFailed(f"dial tcp {endpoint.address}:{endpoint.port}: connect: connection refused")


def wants_sidecar(wear: InjectorWear, pod: Obj, namespace: Obj | None) -> bool:
    """Whether the injector puts its sidecar into this pod."""
    if pod["spec"].get("hostNetwork") or has_sidecar(wear, pod) or _refuses(wear, pod):
        return False
    if wear.ask_annotation is None and wear.ask_label is None:
        return True
    asking = namespace if wear.namespace_asks else None
    asked = wear.ask_annotation is not None and _asks(
        wear.ask_annotation, annotations_of(pod), annotations_of(asking) if asking else {}
    )
    labelled = wear.ask_label is not None and _asks(wear.ask_label, labels_of(pod), labels_of(asking) if asking else {})
    return asked or labelled


def _may_create(wear: InjectorWear, user: str) -> bool:
    return not wear.creators or not user or user in wear.creators


def is_dry_run_only(pod: Obj) -> bool:
    """Whether the pod is one of those that get the sidecar in dry runs only."""
    key, value = DRY_RUN_ONLY
    return labels_of(pod).get(key) == value


def _refuses(wear: InjectorWear, pod: Obj) -> bool:
    if wear.refuse_annotation is None:
        return False
    key, value = wear.refuse_annotation
    return annotations_of(pod).get(key) == value


def _asks(wanted: tuple[str, str], pod: dict[str, str], namespace: dict[str, str]) -> bool:
    key, value = wanted
    return pod.get(key, namespace.get(key)) == value


def has_sidecar(wear: InjectorWear, pod: Obj) -> bool:
    """Whether the pod was injected already, or brings a container of that name."""
    if not wear.sidecar:
        return wear.mark_annotations.items() <= annotations_of(pod).items()
    containers = [*(pod["spec"].get("containers") or []), *(pod["spec"].get("initContainers") or [])]
    return any(container["name"] == wear.sidecar for container in containers)


def inject(wear: InjectorWear, pod: Obj, namespace: Obj | None) -> Obj:
    """The pod with the sidecar and its marks, or as it was if it does not want one."""
    if not wants_sidecar(wear, pod, namespace):
        return pod
    injected = copy(pod)
    metadata, spec = injected["metadata"], injected["spec"]
    metadata["annotations"] = {**annotations_of(pod), **wear.mark_annotations}
    metadata["labels"] = {**labels_of(pod), **wear.mark_labels}
    if not wear.sidecar:
        return injected
    sidecar: Obj = {"name": wear.sidecar, "image": f"{wear.mesh}/sidecar:test"}
    if wear.native_sidecar:
        spec["initContainers"] = [{**sidecar, "restartPolicy": "Always"}, *(spec.get("initContainers") or [])]
    else:
        spec["containers"] = [*spec["containers"], sidecar]
    return injected
