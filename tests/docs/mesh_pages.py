"""Renders docs/meshes.md from the shipped mesh profiles, and the list of decisions from their pages."""

from collections.abc import Iterable
from pathlib import Path

from remesh.meshes import load_profiles
from remesh.profile import Ask, MeshProfile

DOCS = Path(__file__).resolve().parents[2] / "docs"
MESHES = DOCS / "meshes.md"
DECISIONS = DOCS / "decisions" / "index.md"

HEAD = """# Each mesh

What remesh knows of each injector, as its profile in `config/meshes/` says it; this page is rendered from them. In a
live cluster the webhook's own rules and selectors are read first: a pod that no live webhook would see lacks nothing.
To change or add one, see [Add a mesh](mesh-profiles.md).
"""

# What a profile cannot say, and somebody on call should know.
NOTES = {
    "istio": "A revision or a revision tag has a webhook configuration of its own, and each its own gate: while one "
    "revision is away, the workloads of the others are healed. Ambient namespaces have no sidecar and are left alone. "
    "istiod is Ready before it has patched its CA bundle into the webhook; the dry run, not readiness, opens the gate.",
    "linkerd": "The chart's `failurePolicy` is `Ignore`, in the high-availability values `Fail`. The injector answers "
    "before its caches are filled, so that even a denial may pass: it is still reported and not retried.",
    "dapr": "The injector looks at who creates the pod and answers others without a sidecar. Set "
    "`repair.impersonate_controller` and grant `impersonate` on the controllers' service accounts; without it nothing "
    "is proven and nothing is done. Turn Dapr's own watchdog off, or both will act on the same pods.",
    "vault": "An agent that only fetches secrets before the start leaves no container; the annotation is the mark.",
    "consul": "Whether pods are injected without asking is a value of the chart; say it in a profile of your own.",
    "kuma": "It injects pods with hostNetwork too.",
    "opentelemetry": "The annotation may name a collector; if there is none, the operator admits pods bare for good: "
    "the dry run shows it, and nothing is evicted. Other operators use its webhook's name too: the Service decides.",
}


def _code(items: Iterable[str], nothing: str = "none") -> str:
    return ", ".join(f"`{item}`" for item in items) or nothing


def _values(place: Ask) -> str:
    kinds = {"go-bool": "a Go boolean", "yaml-bool": "a YAML boolean, in any case"}
    said = kinds.get(place.values)
    return said or f"yes: {_code(place.yes)}; no: {_code(place.refused)}"


def _asks(profile: MeshProfile) -> list[str]:
    places = [f"{place.kind} `{place.key}` on the {place.on} ({_values(place)})" for place in profile.asks.places]
    default = "injected" if profile.asks.default == "yes" else "left alone"
    if not places and profile.asks.default == "no":
        return ["nobody: this profile only recognises the injector, whose outage refuses pods"]
    return [*places, f"where nobody asks, a pod that its webhook sees is {default}"]


def _never(profile: MeshProfile) -> list[str]:
    never = profile.never
    found = ["hostNetwork"] if never.host_network else []
    found += [f"namespace `{name}`" for name in never.namespaces]
    found += [f"namespaces labelled `{label}`" for label in never.namespace_labels]
    found += [f"pods labelled `{label}`" for label in never.labels]
    return found + [f"beside container `{name}`" for name in never.containers]


def _marks(profile: MeshProfile) -> list[str]:
    mark = profile.mark
    found = [f"annotation `{each}`" for each in mark.annotations] + [f"label `{each}`" for each in mark.labels]
    found += [f"container `{each}`" for each in mark.containers]
    return found + [f"not if its image is still `{each}`" for each in mark.placeholder_images]


def section(profile: MeshProfile) -> str:
    """One mesh as a table."""
    service = profile.service
    policies = sorted({each.failure_policy for each in profile.defaults})
    rows = [
        ("webhooks", _code(profile.webhook.names)),
        ("configurations", _code(profile.webhook.configurations, "any")),
        ("Service", f"`{service.namespace}/{service.name}`, path `{service.path or '/'}`"),
        ("failurePolicy of the chart", _code(policies)),
        ("asks for a sidecar", "; ".join(_asks(profile))),
        ("never injected", "; ".join(_never(profile)) or "as its selectors say"),
        ("mark that it was injected", "; ".join(_marks(profile)) or "the dry run's success"),
        ("injector's own pods", _code(f"{key}={value}" for key, value in profile.injector.labels.items())),
    ]
    lines = [f"## {profile.title}", "", f"`{profile.name}`", "", "| | |", "|---|---|"]
    lines += [f"| {head} | {text} |" for head, text in rows]
    note = NOTES.get(profile.name)
    return "\n".join([*lines, "", note] if note else lines) + "\n"


def render_meshes() -> str:
    """docs/meshes.md."""
    profiles = sorted(load_profiles().all, key=lambda each: (not each.asks.places, each.title.lower()))
    return "\n".join([HEAD, *(section(each) for each in profiles)])


def render_decisions() -> str:
    """docs/decisions/index.md."""
    pages = sorted(DECISIONS.parent.glob("[0-9]*.md"))
    titles = [page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for page in pages]
    head = "# Decisions\n\nOne short page each: what was chosen, why, and what was not.\n"
    return head + "".join(f"\n- [{title}]({page.name})" for title, page in zip(titles, pages, strict=True)) + "\n"


PAGES = {MESHES: render_meshes, DECISIONS: render_decisions}
