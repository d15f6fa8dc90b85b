"""What Istio's own installer would apply: rendered by `istioctl` from the charts inside it, and kept for next time."""

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Api, Object
from tests.cluster.build import cache_directory
from tests.cluster.errors import ClusterError

# As istioctl signs its server-side apply.
FIELD_MANAGER = "istio-operator"
RENDER_SECONDS = 120.0

_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
}


def operator(replicas: int, revision: str = "") -> Object:
    """The installer's input: the profile minimal; several replicas are fixed in number, each on its own node."""
    spec: Object = {"profile": "minimal"} | ({"revision": revision} if revision else {})
    if replicas > 1:
        term = {"labelSelector": {"matchLabels": {"app": "istiod"}}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        spec["values"] = {"pilot": {"autoscaleEnabled": False, "replicaCount": replicas, "affinity": apart}}
    return {"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "spec": spec}


def rendered(istioctl: Path, replicas: int, revision: str = "") -> list[Object]:
    """The objects of an installation, in the installer's order. Raises `ClusterError` when istioctl fails."""
    wanted = operator(replicas, revision)
    stat = istioctl.stat()
    key = json.dumps([str(istioctl), stat.st_size, stat.st_mtime_ns, wanted])
    kept = cache_directory("istio") / f"manifest-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    if not kept.exists():
        _keep(kept, _render(istioctl, wanted))
    objects: list[Object] = json.loads(kept.read_text())
    return objects


def tag(istioctl: Path, kubeconfig: Path, name: str, revision: str) -> None:
    """Have the revision tag `name` point to a revision, wherever it pointed before. Raises `ClusterError`."""
    command = [str(istioctl), "tag", "set", name, "--revision", revision, "--overwrite"]
    command += ["--kubeconfig", str(kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RENDER_SECONDS)
    if done.returncode != 0:
        raise ClusterError(f"istioctl tag set: {done.stderr.strip()}")


def find(objects: list[Object], kind: str, name: str) -> Object:
    """One of the rendered objects."""
    return next(item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name))


def apply(api: Api, item: Object, *, rehearse: bool = False) -> Object:
    """Server-side apply, as the installer does it. Returns the object as it is then; nothing is stored in rehearsal."""
    query = f"fieldManager={FIELD_MANAGER}&force=true" + ("&dryRun=All" if rehearse else "")
    return api.request("PATCH", f"{path(item)}?{query}", item, content_type="application/apply-patch+yaml")


def path(item: Object) -> str:
    """Where an object of the manifest lives in the API. Raises `ClusterError` for a kind that is new to it."""
    metadata = item["metadata"]
    try:
        collection = _PATHS[item["kind"]]
    except KeyError as error:
        raise ClusterError(f"istioctl rendered a {item['kind']}; add its path to istio_manifest.py") from error
    return f"{collection.format(namespace=metadata.get('namespace'))}/{metadata['name']}"


def ca_bundle(configuration: Object) -> str | None:
    """What istiod has patched into every webhook of a configuration; None as long as it has not."""
    bundles = {webhook["clientConfig"].get("caBundle") for webhook in configuration["webhooks"]}
    return bundles.pop() if len(bundles) == 1 else None


def _render(istioctl: Path, wanted: Object) -> list[Any]:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "operator.yaml")
        source.write_text(json.dumps(wanted))
        command = [str(istioctl), "manifest", "generate", "--filename", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RENDER_SECONDS)
    if done.returncode != 0:
        raise ClusterError(f"istioctl manifest generate: {done.stderr.strip()}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the other one takes ten seconds
    return [item for item in yaml.load_all(done.stdout, Loader=loader) if item]


def _keep(kept: Path, objects: list[Any]) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, prefix=".rendering-", delete=False) as fresh:
        json.dump(objects, fresh)
    Path(fresh.name).replace(kept)
