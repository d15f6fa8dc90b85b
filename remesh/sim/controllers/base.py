"""What all controllers share: workers over a queue, retries with back-off, and the making of pods."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from remesh.sim import resources as res
from remesh.sim.client import Client
from remesh.sim.deletion import DeleteOptions
from remesh.sim.events import Recorder
from remesh.sim.objects import Obj, controller_of, controller_reference, name_of, namespace_of
from remesh.sim.resources import Resource
from remesh.sim.status import StatusError
from remesh.sim.store import Change
from remesh.sim.workqueue import BackOff, Key, WorkQueue

_log = logging.getLogger(__name__)

BURST_REPLICAS = 500  # pods that one sync of a controller creates or deletes at most
_PARALLEL_CREATES = 64  # threads; kube-controller-manager would use one goroutine per pod of a batch


class Controller:
    """A queue of keys and its workers. Subclasses watch what concerns them and implement `sync`."""

    name = "controller"
    workers = 1
    back_off = BackOff()

    def __init__(self, client: Client) -> None:
        self.client = client
        self.store = client.store
        self.queue = WorkQueue(self.back_off)
        self.recorder = Recorder(client, self.name)
        self._threads: list[threading.Thread] = []

    def watch(self) -> None:
        """Register with the store for everything that makes a sync necessary."""
        raise NotImplementedError

    def sync(self, key: Key) -> None:
        """Bring one object's world in line with its spec. A StatusError makes the key come back later."""
        raise NotImplementedError

    def start(self) -> None:
        """Watch, and begin to work."""
        self.watch()
        self.recorder.start()
        for number in range(self.workers):
            thread = threading.Thread(target=self._work, name=f"{self.name}-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Take on no more work, and wait for nothing any longer."""
        self.queue.close()
        self.client.throttle.close()

    def stop(self) -> None:
        """End all threads."""
        self.close()
        self.recorder.stop()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _work(self) -> None:
        while (key := self.queue.get()) is not None:
            try:
                self.sync(key)
            except StatusError:
                self.queue.retry(key)
            except Exception:
                _log.exception("sync failed", extra={"controller": self.name, "key": key})
                self.queue.retry(key)
            else:
                self.queue.forget(key)
            finally:
                self.queue.done(key)

    def watch_own(self, resource: Resource) -> None:
        """Every change of the object itself, an annotation too, syncs it at once, past its back-off."""
        self.store.listen(resource, lambda change: self.queue.add(change.key))

    def watch_owned(self, owned: Resource, owner: Resource) -> None:
        """A change of an owned object syncs its controller."""

        def listener(change: Change) -> None:
            reference = controller_of(change.new.obj)
            if reference is not None and reference["kind"] == owner.kind:
                self.queue.add((change.key[0], reference["name"]))

        self.store.listen(owned, listener)

    def find(self, resource: Resource, key: Key) -> Obj | None:
        """An object, if it is there."""
        stored = self.store.get(resource, *key)
        return stored.obj if stored is not None else None

    def set_status(self, resource: Resource, obj: Obj, status: Obj) -> Obj:
        """Write the status unless it is already so. Raises StatusError."""
        status = {key: value for key, value in status.items() if value is not None}
        if obj.get("status") == status:
            return obj

        def changed(current: Obj) -> Obj:
            current["status"] = status
            return current

        return self.client.change(resource, namespace_of(obj), name_of(obj), changed, subresource="status")


class PodOwner(Controller):
    """A controller that creates pods for the objects of one resource."""

    resource: Resource = res.REPLICA_SETS

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._pool = ThreadPoolExecutor(_PARALLEL_CREATES, thread_name_prefix=f"{self.name}-create")

    def watch(self) -> None:
        """Watch the owners, and the pods they own."""
        self.watch_own(self.resource)
        self.watch_owned(res.PODS, self.resource)

    def stop(self) -> None:
        """End all threads."""
        super().stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def pods_of(self, owner: Obj) -> list[Obj]:
        """The pods that name this owner."""
        return self.store.owned(res.PODS, owner["metadata"]["uid"])

    def new_pod(self, owner: Obj, template: Obj) -> Obj:
        """A pod of the template, to be named by the API server."""
        metadata = template.get("metadata") or {}
        return {
            "metadata": {
                "generateName": f"{name_of(owner)}-",
                "labels": dict(metadata.get("labels") or {}),
                "annotations": dict(metadata.get("annotations") or {}),
                "finalizers": list(metadata.get("finalizers") or []),
                "ownerReferences": [controller_reference(self.resource, owner)],
            },
            "spec": template["spec"],
        }

    def create_pod(self, owner: Obj, pod: Obj) -> StatusError | None:
        """Create one pod and record it as Kubernetes Events; the failure is returned, not raised."""
        try:
            created = self.client.create(res.PODS, namespace_of(owner), pod)
        except StatusError as error:
            if error.has_cause("NamespaceTerminating"):
                return None
            self.recorder.record(self.resource, owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
            return error
        message = f"Created pod: {name_of(created)}"
        self.recorder.record(self.resource, owner, "Normal", "SuccessfulCreate", message)
        return None

    def delete_pod(self, owner: Obj, pod: Obj) -> None:
        """Delete one pod and record it as a Kubernetes Event. Raises StatusError."""
        try:
            self.client.delete(res.PODS, namespace_of(pod), name_of(pod), DeleteOptions())
        except StatusError as error:
            if error.code != 404:
                raise
            return
        message = f"Deleted pod: {name_of(pod)}"
        self.recorder.record(self.resource, owner, "Normal", "SuccessfulDelete", message)

    def slow_start(self, count: int, create: Callable[[int], StatusError | None]) -> StatusError | None:
        """Create in batches of 1, 2, 4 and so on; the first batch with a failure is the last of this sync.

        `create` is given the number of the creation, and its failures are returned: the first one.
        """
        done, batch = 0, 1
        while done < count:
            batch = min(batch, count - done)
            numbers = range(done, done + batch)
            results = [create(done)] if batch == 1 else list(self._pool.map(create, numbers))
            failure = next((result for result in results if result is not None), None)
            if failure is not None:
                return failure
            done += batch
            batch *= 2
        return None
