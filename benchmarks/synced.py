"""A large cluster from nothing: 150,000 pods, 30,000 ReplicaSets and 5,000 nodes until the watcher has synced.

`python -m benchmarks.synced [--pods 150000] [--replica-sets 30000] [--nodes 5000] [--json FILE]`

The limit to compare with is the stream itself: the same bytes read by one plain connection that throws them away.
The watcher is the shipped one, all of its process is measured, and it goes on until each object has been judged once.
"""

import argparse
import http.client
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.field import field
from benchmarks.report import print_table, write
from benchmarks.served import Served, cpu_seconds, peak, resident, wait

LISTS = ("/api/v1/pods", "/apis/apps/v1/replicasets", "/api/v1/nodes")
PAGE = 500
_TOKEN = re.compile(rb'"continue":"([^"]*)"')


def read_all(url: str) -> tuple[float, int]:
    """Seconds and bytes of all lists, read and thrown away."""
    began, size = time.monotonic(), 0
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    for path in LISTS:
        token = ""
        while True:
            connection.request("GET", f"{path}?limit={PAGE}" + (f"&continue={token}" if token else ""))
            body = connection.getresponse().read()
            size += len(body)
            found = _TOKEN.search(body, 0, 1000)
            token = found.group(1).decode() if found else ""
            if not token:
                break
    return time.monotonic() - began, size


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Start the watcher, and look at it from outside."""
    with Served(options.pods, options.replica_sets, options.nodes) as served, field(served) as stack:
        stream, size = read_all(served.url)
        began = time.monotonic()
        process = stack.start("watcher", env={"REMESH_SHARD": options.shard})
        process.wait_for("synced", 600)
        ready, pid = time.monotonic() - began, process.popen.pid
        found = re.search(r"synced .*?seconds=([\d.]+)", process.text())
        figures = {
            "stream_seconds": stream,
            "stream_bytes": size,
            "start_to_synced": ready,
            "synced_seconds": float(found.group(1)) if found else ready,
            "synced_bytes": resident(pid),
            "synced_cpu": cpu_seconds(pid),
        }
        wait(lambda: _rests(pid), "the look at all objects", 300)
        return figures | {
            "judged_seconds": time.monotonic() - began,
            "judged_cpu": cpu_seconds(pid),
            "bytes": resident(pid),
            "peak_bytes": peak(pid),
            "records": len(stack.records()),
        }


def _rests(pid: int) -> bool:
    before = cpu_seconds(pid)
    time.sleep(1.0)
    return cpu_seconds(pid) - before < 0.1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--replica-sets", type=int, default=30_000)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--shard", default="", help="such as 0/3: a watcher of a third of the namespaces")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    row = measure(options)
    ratio = row["synced_seconds"] / row["stream_seconds"]
    title = f"{options.pods} pods, {options.replica_sets} ReplicaSets, {options.nodes} nodes"
    rows = [
        [
            "the stream alone, read and thrown away",
            "1.0",
            f"{row['stream_seconds']:.1f} s",
            f"{row['stream_bytes'] / 1e6:.0f} MB on the wire",
        ],
        [
            "the watcher synced",
            f"{ratio:.1f}",
            f"{row['synced_seconds']:.1f} s",
            f"{row['synced_bytes'] / 1e6:.0f} MB resident",
        ],
        [
            "… from its start",
            f"{row['start_to_synced'] / row['stream_seconds']:.1f}",
            f"{row['start_to_synced']:.1f} s",
            "",
        ],
        [
            "… until each object was judged",
            f"{row['judged_seconds'] / row['stream_seconds']:.1f}",
            f"{row['judged_seconds']:.1f} s",
            f"{row['bytes'] / 1e6:.0f} MB resident",
        ],
        ["highest", "", "", f"{row['peak_bytes'] / 1e6:.0f} MB"],
    ]
    print_table(title, ["what", "× stream", "time", "bytes"], rows)
    print(f"CPU: {row['synced_cpu']:.1f} s until synced, {row['judged_cpu']:.1f} s until all was judged")
    write(options.json, "synced", row, pods=options.pods, replica_sets=options.replica_sets, nodes=options.nodes)


if __name__ == "__main__":
    main()
