"""The only code that talks to the API server.

From the bottom up: `config` (kubeconfig or service account → Access), `transport` (Access → KubeClient, errors
translated once), `resources` (kind → path), `decode` (bytes → projections), `api` (typed verbs), `probe` (does the
injector inject?), `watch` (list and watch into callbacks).
"""
