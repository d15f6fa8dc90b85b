"""The watcher: store → detect → gate → release. `python -m watcher` starts it.

It turns the state of the cluster into findings, holds them until their injector works, and sends them to the
workers by priority inside a window. It writes to the audit trail and to the broker, never to the cluster.
"""
