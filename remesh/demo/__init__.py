"""The demo: an injector's outage and its repair, played through the real watcher, worker and Valkey.

`bed` chooses the cluster, `stage` puts workloads on it and looks at them, `screen` shows, `play` runs the story,
`report` says how it ended. Called by `remesh.cli.demo`.
"""
