"""How cost grows with the number of objects: `python -m benchmarks.growth [--sizes 1000,10000,100000] [--json FILE]`.

list: pages decoded into the store. look: every healthy pod and ReplicaSet judged once. change: one pod of so many
changes, from the line of the watch to its judgement. find: refused ReplicaSets become findings in trail and ledger.
tick: one round of the watcher's thread with so many waiting behind a closed gate. release: so many findings sent (to
a queue that takes them and does nothing). audit: records appended; history: of one object among so many. Costs are
CPU time, of this process and of Redis, so that a busy machine does not show in them.

The exponent is the slope between neighbouring sizes: 1 is linear.
"""

import argparse
import gc
import math
import re
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import scenery
from benchmarks.audit import records
from benchmarks.pods import REPLICAS
from benchmarks.report import print_table, write
from benchmarks.served import cpu_seconds
from benchmarks.tasks import INJECTOR, finding
from remesh.audit import Trail
from remesh.embedded import EmbeddedRedis
from remesh.kube.decode import decode_list, decode_watch_line
from remesh.kube.sharing import Siblings
from remesh.ledger import Ledger
from remesh.meshes import load_profiles
from remesh.policy import WindowPolicy, load_policy
from remesh.redisdb import RedisClient, connect_url
from watcher.desk import Desk
from watcher.findings import to_waiting
from watcher.gate import Gate, GateStatus
from watcher.look import Looker
from watcher.release import Releaser
from watcher.runtime import Watcher
from watcher.store import Store

PAGE = 500
WHAT = ("list", "look", "change", "find", "tick", "release", "audit", "history")
ALONE = ("change", "tick", "history")
"""What costs this much once, among so many; the others are done to every object."""
CHANGES = 2_000
LONGEST = {"find": 20_000, "release": 20_000}
"""Above this one size takes minutes and tells no more."""


def page(kind: str, items: list[bytes]) -> bytes:
    """One page of a list."""
    head = f'{{"kind":"{kind}List","metadata":{{"resourceVersion":"1"}},"items":['
    return head.encode() + b",".join(items) + b"]}"


def pages_of_pods(count: int) -> list[bytes]:
    """The pods' list."""
    render = scenery.Pods()
    return [page("Pod", [render(n) for n in range(at, min(at + PAGE, count))]) for at in range(0, count, PAGE)]


def surroundings(store: Store) -> None:
    """Namespaces, webhook configuration and endpoints."""
    names = [f"team-{number}" for number in range(scenery.NAMESPACES)]
    spaces = page("Namespace", [scenery.compact(scenery.namespace(name)) for name in names])
    store.replace("Namespace", decode_list("Namespace", spaces).items)
    kind = "MutatingWebhookConfiguration"
    store.replace(kind, decode_list(kind, page(kind, [scenery.compact(scenery.webhook_configuration())])).items)
    slices = decode_list("EndpointSlice", page("EndpointSlice", [scenery.compact(scenery.endpoint_slice())]))
    store.replace_slices("linkerd", "linkerd-proxy-injector", slices.items)


def fill(store: Store, pages: list[bytes]) -> None:
    """As a reflector does it."""
    siblings, items = Siblings(), []
    for each in pages:
        for pod in decode_list("Pod", each).items:
            siblings.share(pod)
            items.append(pod)
    store.replace("Pod", items)


class Bench:
    """One size."""

    def __init__(self, client: RedisClient, redis_pid: int, size: int) -> None:
        self.size = size
        self._redis_pid = redis_pid
        self._client = client
        self._place = f"size-{size}"

    def desk(self, store: Store, name: str) -> Desk:
        """A desk with a trail of its own."""
        room = min(self.size + 100, 100_000)
        policy = load_policy().model_copy(update={"window": WindowPolicy(initial=room, maximum=room)})
        place = f"{self._place}-{name}"
        return Desk(place, policy, load_profiles(None), store, Trail(self._client, place), Ledger(self._client, place))

    def timed(self, work: Callable[[], Any]) -> float:
        """CPU seconds, here and in Redis (which the system counts in hundredths)."""
        gc.collect()
        began = time.process_time() + cpu_seconds(self._redis_pid)
        work()
        return time.process_time() + cpu_seconds(self._redis_pid) - began

    def list(self) -> float:
        """Seconds to decode and store."""
        pages = pages_of_pods(self.size)
        return self.timed(lambda: fill(Store(), pages))

    def look(self) -> float:
        """Seconds to judge all that is healthy."""
        store = Store()
        surroundings(store)
        fill(store, pages_of_pods(self.size))
        sets = [scenery.compact(scenery.replica_set(group)) for group in range(self.size // REPLICAS)]
        store.replace("ReplicaSet", decode_list("ReplicaSet", page("ReplicaSet", sets)).items)
        desk = self.desk(store, "look")
        looker = looker_of(desk)
        spent = self.timed(lambda: drain(looker, store))
        assert not len(desk.book), "healthy pods were taken for findings"
        return spent

    def change(self) -> float:
        """Seconds for one change among so many pods: decoded, stored, judged."""
        store = Store()
        surroundings(store)
        fill(store, pages_of_pods(self.size))
        desk = self.desk(store, "change")
        looker = looker_of(desk)
        drain(looker, store)
        render = scenery.Pods()
        lines = [changed(render(number % self.size), number) for number in range(CHANGES)]

        def follow() -> None:
            for line in lines:
                event = decode_watch_line("Pod", line)
                store.apply("Pod", event.type, event.object)
                drain(looker, store)

        return self.timed(follow) / CHANGES

    def find(self) -> float:
        """Seconds until all refused ReplicaSets are findings."""
        store = Store()
        surroundings(store)
        sets = [scenery.replica_set(group, 1, name=f"stuck-{group}", refused=True) for group in range(self.size)]
        store.replace("ReplicaSet", decode_list("ReplicaSet", page("ReplicaSet", [*map(scenery.compact, sets)])).items)
        desk = self.desk(store, "find")
        looker = looker_of(desk)
        spent = self.timed(lambda: drain(looker, store))
        assert len(desk.book) == self.size
        return spent

    def tick(self) -> float:
        """Seconds of one round with so many waiting; everything was noted before."""
        store = Store()
        desk = self.desk(store, "tick")
        watcher = Watcher(desk, lambda request: request.task_id, lambda _: (_ for _ in ()).throw(AssertionError))
        for number in range(self.size):
            to_waiting(desk.book.add(finding(number, desk.cluster)))
        watcher.tick()
        return min(self.timed(watcher.tick) for _ in range(5))

    def release(self) -> float:
        """Seconds to send them all; the queue takes them and does nothing."""
        desk = self.desk(Store(), "release")
        releaser = Releaser(desk, lambda request: request.task_id)
        for number in range(self.size):
            to_waiting(desk.book.add(finding(number, desk.cluster)))
        return self.timed(lambda: releaser.release([Gate(INJECTOR.key, status=GateStatus.OPEN)]))

    def audit(self) -> float:
        """Seconds to append so many records."""
        written = records(self.size)
        trail = Trail(self._client, f"{self._place}-audit")
        return self.timed(lambda: trail.append_many(written))

    def history(self) -> float:
        """Seconds for one finding's history among them. After `audit`."""
        trail = Trail(self._client, f"{self._place}-audit")
        return self.timed(lambda: [trail.history(f"f-{number:012x}") for number in range(200)]) / 200


def looker_of(desk: Desk) -> Looker:
    """What judges changes; its queue takes everything and does nothing."""
    return Looker(desk, Releaser(desk, lambda request: request.task_id), lambda *_: None)


def changed(pod: bytes, number: int) -> bytes:
    """The watch's line for a pod of which nothing has changed that matters."""
    newer = re.sub(rb'"resourceVersion":"\d+"', b'"resourceVersion":"%d"' % (900_000 + number), pod, count=1)
    return b'{"type":"MODIFIED","object":' + newer + b"}\n"


def drain(looker: Looker, store: Store) -> None:
    """Look until nothing has changed."""
    while store._dirty:
        looker.look_at_changes()


def main() -> None:
    """Measure every size and print costs and exponents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--what", default=",".join(WHAT))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [int(each) for each in options.sizes.split(",")]
    found: dict[str, dict[int, float]] = {name: {} for name in options.what.split(",")}
    with EmbeddedRedis() as server, connect_url(server.url) as client:
        for size in sizes:
            for name, costs in found.items():
                taken = min(size, LONGEST.get(name, size))
                if taken not in costs:
                    costs[taken] = getattr(Bench(client, server.pid, taken), name)()
                    print(f"   {name} {taken}: {costs[taken]:.3f} s", file=sys.stderr, flush=True)
    rows = []
    for name, costs in found.items():
        known = sorted(costs.items())
        slopes = [exponent(*pair) for pair in pairwise(known)]
        each = [f"{size}: {cost * 1000:,.1f} ms" for size, cost in known]
        unit = f"{known[-1][1] / (1 if name in ALONE else known[-1][0]) * 1e6:,.1f} µs"
        rows.append([name, " ".join(f"{slope:.2f}" for slope in slopes), unit, *each])
    print_table("how cost grows", ["what", "exponents", "each", *(["at size"] * len(sizes))], rows)
    write(options.json, "growth", {name: {str(k): v for k, v in costs.items()} for name, costs in found.items()})


def exponent(one: tuple[int, float], other: tuple[int, float]) -> float:
    """Slope of the cost between two sizes, on logarithmic scales."""
    return math.log(other[1] / one[1]) / math.log(other[0] / one[0])


if __name__ == "__main__":
    main()
