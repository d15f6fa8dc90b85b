"""For each alert: series under which it fires, and series under which it must not."""

from dataclasses import dataclass

C = 'cluster="c"'
GATE = f'{C},mesh="istio",injector="istio-system/istiod"'
WATCHER = f'remesh_build_info{{{C},component="watcher"}}'
WORKER = f'remesh_build_info{{{C},component="worker"}}'


@dataclass(frozen=True)
class Case:
    """`series` at one sample a minute in Prometheus' notation; the alert is looked at after `minutes`."""

    alert: str
    what: str
    series: dict[str, str]
    minutes: int
    firing: int  # how many of it


def repairs(result: str, values: str) -> dict[str, str]:
    return {f'remesh_repairs_total{{{C},action="nudge_owner",result="{result}"}}': values}


def dry_runs(fast: str, slow: str) -> dict[str, str]:
    name = f'remesh_dry_run_seconds_bucket{{{C},mesh="istio",le='
    return {f'{name}"0.5"}}': fast, f'{name}"2"}}': slow, f'{name}"+Inf"}}': slow}


def gate(waiting: str, closed: str) -> dict[str, str]:
    return {
        f"remesh_gate_waiting_findings{{{GATE}}}": waiting,
        f'remesh_gate_status{{{GATE},status="closed"}}': closed,
    }


def one(name: str, labels: str, values: str) -> dict[str, str]:
    return {f"{name}{{{C}{',' if labels else ''}{labels}}}": values}


CASES = [
    Case("RemeshWatcherAbsent", "none is scraped", {WORKER: "1x20"}, 10, 1),
    Case("RemeshWatcherAbsent", "one is scraped", {WATCHER: "1x20"}, 10, 0),
    Case("RemeshWatcherAbsent", "it restarts within five minutes", {WATCHER: "1 1 1 _ _ 1x15"}, 10, 0),
    Case("RemeshWorkerAbsent", "none is scraped", {WATCHER: "1x20"}, 10, 1),
    Case("RemeshWorkerAbsent", "one is scraped", {WORKER: "1x20"}, 10, 0),
    Case(
        "RemeshNoLeader",
        "two stand by",
        {
            f'remesh_leader{{{C},shard="",instance="a"}}': "0x20",
            f'remesh_leader{{{C},shard="",instance="b"}}': "0x20",
        },
        5,
        1,
    ),
    Case(
        "RemeshNoLeader",
        "one leads",
        {
            f'remesh_leader{{{C},shard="",instance="a"}}': "1x20",
            f'remesh_leader{{{C},shard="",instance="b"}}': "0x20",
        },
        5,
        0,
    ),
    Case("RemeshNoLeader", "a takeover", one("remesh_leader", 'shard=""', "1 0 1x10"), 5, 0),
    Case(
        "RemeshSeveralLeaders",
        "two lead",
        {
            f'remesh_leader{{{C},shard="",instance="a"}}': "1x20",
            f'remesh_leader{{{C},shard="",instance="b"}}': "1x20",
        },
        5,
        1,
    ),
    Case(
        "RemeshSeveralLeaders",
        "each leads its shard",
        {
            f'remesh_leader{{{C},shard="0/2",instance="a"}}': "1x20",
            f'remesh_leader{{{C},shard="1/2",instance="b"}}': "1x20",
        },
        5,
        0,
    ),
    Case("RemeshWatcherNotSynced", "not after ten minutes", one("remesh_synced", "", "0x20"), 12, 1),
    Case("RemeshWatcherNotSynced", "lists took five minutes", one("remesh_synced", "", "0x5 1x20"), 12, 0),
    Case("RemeshWatchStale", "nothing comes", one("remesh_watch_staleness_seconds", 'kind="Pod"', "0+60x20"), 12, 1),
    Case("RemeshWatchStale", "bookmarks come", one("remesh_watch_staleness_seconds", 'kind="Pod"', "50x20"), 12, 0),
    Case("RemeshMainLoopStuck", "it hangs", one("remesh_loop_staleness_seconds", "", "0+60x20"), 5, 1),
    Case("RemeshMainLoopStuck", "a slow round", one("remesh_loop_staleness_seconds", "", "1 20 1x20"), 5, 0),
    Case("RemeshGateClosed", "findings wait", gate("4x30", "1x30"), 20, 1),
    Case("RemeshGateClosed", "closed for five minutes", gate("4x5 0x30", "1x5 0x30"), 20, 0),
    Case("RemeshGateClosed", "open, and findings wait for the window", gate("4x30", "0x30"), 20, 0),
    Case(
        "RemeshFindingsStuck",
        "waits for hours",
        one("remesh_oldest_finding_seconds", 'state="waiting"', "3500+60x30"),
        20,
        1,
    ),
    Case(
        "RemeshFindingsStuck",
        "is reported for hours",
        one("remesh_oldest_finding_seconds", 'state="reported"', "9000x30"),
        20,
        0,
    ),
    Case(
        "RemeshFindingsStuck", "each is young", one("remesh_oldest_finding_seconds", 'state="waiting"', "60x30"), 20, 0
    ),
    Case(
        "RemeshFindingsReported",
        "a quota",
        one("remesh_findings", 'cause="quota_exceeded",mesh="",state="reported"', "2x60"),
        40,
        1,
    ),
    Case(
        "RemeshFindingsReported",
        "one that waits",
        one("remesh_findings", 'cause="webhook_timeout",mesh="istio",state="waiting"', "2x60"),
        40,
        0,
    ),
    Case("RemeshOwnersQuarantined", "one", one("remesh_quarantined_owners", "", "0 1x20"), 5, 1),
    Case("RemeshOwnersQuarantined", "none", one("remesh_quarantined_owners", "", "0x20"), 5, 0),
    Case("RemeshRepairsFailing", "all fail", repairs("failed", "0+1x40") | repairs("healed", "0x40"), 30, 1),
    Case("RemeshRepairsFailing", "one in ten fails", repairs("failed", "0+1x40") | repairs("healed", "0+9x40"), 30, 0),
    Case(
        "RemeshRepairsFailing", "one, and no other", repairs("failed", "0x10 1x30") | repairs("healed", "0x40"), 20, 0
    ),
    Case("RemeshBrakeEngaged", "engaged", one("remesh_brake_engaged", 'injector="a/b"', "0 1x20"), 5, 1),
    Case("RemeshBrakeEngaged", "free", one("remesh_brake_engaged", 'injector="a/b"', "0x20"), 5, 0),
    Case("RemeshDryRunsSlow", "more than a second", dry_runs("0+1x60", "0+10x60"), 30, 1),
    Case("RemeshDryRunsSlow", "milliseconds", dry_runs("0+10x60", "0+10x60"), 30, 0),
    Case("RemeshDryRunsSlow", "none at all", dry_runs("5x60", "5x60"), 30, 0),
    Case("RemeshTrailNotWritable", "it fails", one("remesh_trail_append_failures_total", "", "0 0 2+2x20"), 6, 1),
    Case(
        "RemeshTrailNotWritable",
        "it failed an hour ago",
        one("remesh_trail_append_failures_total", "", "0 2 2x60"),
        60,
        0,
    ),
    Case("RemeshTrailBehind", "nobody follows", one("remesh_trail_tail_behind_seconds", "", "0+60x30"), 15, 1),
    Case("RemeshTrailBehind", "a burst", one("remesh_trail_tail_behind_seconds", "", "0 90 90 0x20"), 15, 0),
    Case("RemeshRedisDown", "away", one("remesh_redis_up", 'instance="a"', "1 0x20"), 6, 1),
    Case("RemeshRedisDown", "a restart", one("remesh_redis_up", 'instance="a"', "1 0 1x20"), 6, 0),
    Case("RemeshBrokerDown", "away", one("remesh_broker_up", 'instance="a"', "1 0x20"), 6, 1),
    Case("RemeshBrokerDown", "there", one("remesh_broker_up", 'instance="a"', "1x20"), 6, 0),
    Case("RemeshTasksNotFetched", "many wait", one("remesh_queued_tasks", 'queue="remesh.background"', "80x30"), 15, 1),
    Case(
        "RemeshTasksNotFetched", "a burst", one("remesh_queued_tasks", 'queue="remesh.background"', "80 80 0x30"), 15, 0
    ),
    Case("RemeshTasksRefused", "one", one("remesh_tasks_refused_total", "", "0 0 1x30"), 5, 1),
    Case("RemeshTasksRefused", "none", one("remesh_tasks_refused_total", "", "0x30"), 5, 0),
]
