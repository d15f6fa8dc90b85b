"""The reflectors of the watcher: one thread a kind, and one for each injector's EndpointSlices.

Which Services are injectors' is read from the live webhook configurations, so the set of those follows them.
"""

import threading
import time
from typing import Any

from remesh import logs
from remesh.kube.transport import KubeClient
from remesh.kube.watch import Reflector
from remesh.meshes import Profiles
from remesh.objects import Webhook
from watcher.shard import Shard
from watcher.store import SERVICE_LABEL, WORKLOAD_KINDS, Store

log = logs.get("watcher.reflect")

STALE_SECONDS = 180.0  # the API server sends a bookmark about once a minute
_SHARDED = ("Pod", "Deployment", *WORKLOAD_KINDS)
# A silent watch is opened anew after 90 s, a failed one within 30; either way something happens well before this.
STUCK_SECONDS = 300.0
KINDS = ("Namespace", "MutatingWebhookConfiguration", "Node", *_SHARDED)
_WHOLE = Shard()


class Reflectors:
    """Keeps a store current until `stop` is set."""

    def __init__(
        self, client: KubeClient, store: Store, profiles: Profiles, stop: threading.Event, shard: Shard = _WHOLE
    ) -> None:
        self._client = client
        self._store = store
        self._profiles = profiles
        self._stop = stop
        self._shard = shard
        self._by_kind = {kind: self._reflector(kind) for kind in KINDS}
        self._services: dict[tuple[str, str], tuple[Reflector, threading.Event]] = {}
        self._threads: list[threading.Thread] = []
        self.failure: Exception | None = None  # what ended a reflector, if one ended

    def start(self) -> None:
        """Start a thread for each kind, and one that follows the injectors' Services."""
        for kind, reflector in self._by_kind.items():
            self._spawn(f"reflect-{kind}", reflector, self._stop)
        thread = threading.Thread(target=self._follow_services, name="reflect-services", daemon=True)
        thread.start()
        self._threads.append(thread)

    def wait_synced(self) -> bool:
        """Block until every kind has been listed once; False if `stop` was set before."""
        while not self._stop.is_set():
            if all(reflector.synced.wait(0.1) for reflector in self._all()):
                return True
        return False

    @property
    def synced(self) -> bool:
        """True if every kind has been listed and none has been silent for longer than a watch may be."""
        oldest = time.monotonic() - STALE_SECONDS
        return all(each.synced.is_set() and each.last_activity > oldest for each in self._all())

    def staleness(self) -> dict[str, float]:
        """Seconds since the API server last sent anything, by kind; of EndpointSlices the longest."""
        now = time.monotonic()
        ages: dict[str, float] = {}
        for each in self._all():
            ages[each.kind] = max(ages.get(each.kind, 0.0), now - each.last_activity)
        return ages

    def lists(self) -> dict[str, int]:
        """Complete lists so far, by kind."""
        counted: dict[str, int] = {}
        for each in self._all():
            counted[each.kind] = counted.get(each.kind, 0) + each.lists
        return counted

    def stuck(self) -> str | None:
        """A watch that neither hears anything nor tries again, in one line; None if there is none.

        An API server that is away is no such thing: it is tried again and again, and a restart would not help.
        """
        oldest = time.monotonic() - STUCK_SECONDS
        stuck = [each.kind for each in self._all() if max(each.last_activity, each.last_turn) < oldest]
        if not stuck:
            return None
        return f"the watch of {', '.join(sorted(set(stuck)))} is stuck: nothing came for {STUCK_SECONDS:.0f} s"

    def join(self, seconds: float = 5.0) -> None:
        """Wait for the threads to end after `stop`."""
        for thread in self._threads:
            thread.join(seconds)

    def _all(self) -> list[Reflector]:
        return [*self._by_kind.values(), *(reflector for reflector, _ in list(self._services.values()))]

    def _spawn(self, name: str, reflector: Reflector, stop: threading.Event) -> None:
        thread = threading.Thread(target=self._follow, args=(reflector, stop), name=name, daemon=True)
        thread.start()
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]

    def _follow(self, reflector: Reflector, stop: threading.Event) -> None:
        """A reflector that ends by a defect ends the watcher: a new one starts with whole lists."""
        try:
            reflector.run(stop)
        except Exception as error:
            log.exception("a reflector failed", kind=reflector.kind)
            self.failure = error
            self._stop.set()

    def _reflector(self, kind: str) -> Reflector:
        def ours(item: Any) -> bool:
            return self._shard.owns(item.metadata.namespace)

        def on_list(items: list[Any]) -> None:
            self._store.replace(kind, items)

        def on_event(event: str, item: Any) -> None:
            self._store.apply(kind, event, item)

        divided = kind in _SHARDED and not self._shard.is_whole
        return Reflector(self._client, kind, on_list, on_event, keep=ours if divided else None)

    def _slices_reflector(self, namespace: str, service: str) -> Reflector:
        def on_list(items: list[Any]) -> None:
            self._store.replace_slices(namespace, service, items)

        def on_event(event: str, item: Any) -> None:
            self._store.apply_slice(namespace, service, event, item)

        return Reflector(
            self._client,
            "EndpointSlice",
            on_list,
            on_event,
            namespace=namespace,
            label_selector=f"{SERVICE_LABEL}={service}",
        )

    def _follow_services(self) -> None:
        version = -1
        while not self._stop.wait(0.05):
            if self._store.webhooks_version == version:
                continue
            version = self._store.webhooks_version
            self._match(injector_services(self._store.webhooks(), self._profiles))
        for _, stop in self._services.values():
            stop.set()

    def _match(self, wanted: set[tuple[str, str]]) -> None:
        for key in set(self._services) - wanted:
            self._services.pop(key)[1].set()
            self._store.drop_slices(*key)
        for key in wanted - set(self._services):
            reflector, stop = self._slices_reflector(*key), threading.Event()
            self._services[key] = (reflector, stop)
            self._spawn(f"reflect-slices-{key[0]}-{key[1]}", reflector, stop)
            log.info("following an injector's endpoints", namespace=key[0], service=key[1])


def injector_services(webhooks: list[tuple[str, Webhook]], profiles: Profiles) -> set[tuple[str, str]]:
    """Services that live injector webhooks call, as (namespace, name)."""
    found = set()
    for configuration, webhook in webhooks:
        service = webhook.client_config.service
        if service is not None and profiles.for_webhook(configuration, webhook) is not None:
            found.add((service.namespace, service.name))
    return found
