"""What goes when something else goes: dependents of deleted owners, and the content of deleted namespaces."""

from remesh.sim import resources as res
from remesh.sim.client import Client
from remesh.sim.controllers.base import Controller
from remesh.sim.deletion import DeleteOptions
from remesh.sim.objects import Obj, copy, is_terminating, name_of, uid_of
from remesh.sim.resources import STORED, Resource
from remesh.sim.status import StatusError
from remesh.sim.store import Change
from remesh.sim.workqueue import Key

_FINALIZERS = ("orphan", "foregroundDeletion")


class GarbageCollector(Controller):
    """Deletes objects whose owners are all gone, and carries out orphaning and foreground deletion.

    Keys are (resource, "namespace/name").
    """

    name = "garbage-collector"
    workers = 2

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._resources = {resource.qualified: resource for resource in STORED}

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        for resource in STORED:
            if resource is not res.EVENTS:
                self.store.listen(resource, self._changed)

    def _changed(self, change: Change) -> None:
        metadata = change.new.obj["metadata"]
        if change.type == "DELETED":
            for resource, key in self.store.dependents(metadata["uid"]):
                self._enqueue(resource, key)
            for reference in metadata.get("ownerReferences") or ():
                self._enqueue_owner(reference, change.key[0])
        elif metadata.get("ownerReferences") and change.type == "ADDED":
            self._enqueue(change.resource, change.key)
        if any(name in _FINALIZERS for name in metadata.get("finalizers") or ()) and is_terminating(change.new.obj):
            self._enqueue(change.resource, change.key)

    def _enqueue(self, resource: Resource, key: Key) -> None:
        self.queue.add((resource.qualified, "/".join(key)))

    def _enqueue_owner(self, reference: Obj, namespace: str) -> None:
        owner = res.BY_KIND.get((reference["apiVersion"], reference["kind"]))
        if owner is not None:
            self._enqueue(owner, (namespace if owner.namespaced else "", reference["name"]))

    def sync(self, key: Key) -> None:
        """Let go, or finish off."""
        resource = self._resources[key[0]]
        namespace, _, name = key[1].partition("/")
        obj = self.find(resource, (namespace, name))
        if obj is None:
            return
        references = obj["metadata"].get("ownerReferences") or []
        if references and not any(self._may_live(reference) for reference in references):
            self._delete(resource, obj)
        elif is_terminating(obj):
            self._finish(resource, obj)

    def _may_live(self, reference: Obj) -> bool:
        """An owner of a kind that is not installed cannot be looked for, so nothing is deleted for its sake."""
        known = (reference["apiVersion"], reference["kind"]) in res.BY_KIND
        return not known or self.store.is_live(reference["uid"])

    def _delete(self, resource: Resource, obj: Obj, propagation: str = "Background") -> None:
        if is_terminating(obj):
            return
        options = DeleteOptions(uid=uid_of(obj), propagation=propagation)
        try:
            self.client.delete(resource, obj["metadata"].get("namespace", ""), name_of(obj), options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    def _finish(self, resource: Resource, owner: Obj) -> None:
        finalizers = owner["metadata"].get("finalizers") or []
        dependents = self.store.dependents(uid_of(owner))
        if "orphan" in finalizers:
            for kind, key in dependents:
                self._disown(kind, key, uid_of(owner))
            self._release(resource, owner, "orphan")
        elif "foregroundDeletion" in finalizers:
            for kind, key in dependents:
                if (dependent := self.find(kind, key)) is not None:
                    self._delete(kind, dependent, "Foreground")
            if not dependents:
                self._release(resource, owner, "foregroundDeletion")

    def _disown(self, resource: Resource, key: Key, owner_uid: str) -> None:
        def disowned(current: Obj) -> Obj:
            references = current["metadata"].get("ownerReferences") or []
            kept = [reference for reference in references if reference["uid"] != owner_uid]
            current["metadata"]["ownerReferences"] = kept
            return current

        self.client.change(resource, *key, disowned)

    def _release(self, resource: Resource, owner: Obj, finalizer: str) -> None:
        def released(current: Obj) -> Obj:
            kept = [name for name in current["metadata"].get("finalizers") or [] if name != finalizer]
            current["metadata"]["finalizers"] = kept
            return current

        try:
            self.client.change(resource, owner["metadata"].get("namespace", ""), name_of(owner), released)
        except StatusError as error:
            if error.code != 404:
                raise


class NamespaceController(Controller):
    """Gives a new namespace its service account, and empties a terminating one before it goes."""

    name = "namespace-controller"

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        self.watch_own(res.NAMESPACES)
        for resource in STORED:
            if resource.namespaced and resource is not res.EVENTS:
                self.store.listen(resource, self._content_changed)

    def _content_changed(self, change: Change) -> None:
        if change.type == "DELETED":
            self.queue.add(("", change.key[0]))

    def sync(self, key: Key) -> None:
        """Let go, or finish off."""
        namespace = self.find(res.NAMESPACES, key)
        if namespace is None:
            return
        if is_terminating(namespace):
            self._empty(namespace)
        elif self.find(res.SERVICE_ACCOUNTS, (key[1], "default")) is None:
            self.client.create(res.SERVICE_ACCOUNTS, key[1], {"metadata": {"name": "default"}})

    def _empty(self, namespace: Obj) -> None:
        name = name_of(namespace)
        left = False
        for resource in STORED:
            if not resource.namespaced:
                continue
            for item in self.store.objects(resource, name):
                left = True
                options = DeleteOptions(uid=uid_of(item.obj), propagation="Background")
                self._delete(resource, name, item.obj, options)
        if left:
            self.queue.add_after(("", name), 0.05)
            return
        self.client.change(res.NAMESPACES, "", name, _without_finalizers, subresource="finalize")

    def _delete(self, resource: Resource, namespace: str, obj: Obj, options: DeleteOptions) -> None:
        if is_terminating(obj):
            return
        try:
            self.client.delete(resource, namespace, name_of(obj), options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise


def _without_finalizers(namespace: Obj) -> Obj:
    emptied = copy(namespace)
    emptied["spec"] = {"finalizers": []}
    return emptied
