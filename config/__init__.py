"""Shipped data: mesh profiles, the default policy, manifests and dashboards. No code."""
