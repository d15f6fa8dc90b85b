"""What the API server's own plug-ins add to every new pod: its service account's token, and default tolerations."""

from remesh.sim import resources as res
from remesh.sim.objects import Obj, suffix
from remesh.sim.status import StatusError
from remesh.sim.store import Store

_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME_PREFIX = "kube-api-access-"
_TOLERATION_SECONDS = 300


def add_defaults(store: Store, namespace: str, pod: Obj) -> None:
    """Change a pod that is about to be shown to the webhooks. Raises StatusError (403) without its account."""
    spec = pod["spec"]
    account = spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", account)
    if store.get(res.SERVICE_ACCOUNTS, namespace, account) is None:
        name = pod["metadata"].get("name") or pod["metadata"].get("generateName", "")
        message = (
            f'pods "{name}" is forbidden: error looking up service account {namespace}/{account}: '
            f'serviceaccount "{account}" not found'
        )
        raise StatusError(403, "Forbidden", message, details={"name": name, "kind": "pods"})
    _tolerate(spec)
    mount_token(pod)


def mount_token(pod: Obj) -> None:
    """Give each container the token; once more after the webhooks, which may have added containers."""
    spec = pod["spec"]
    if spec.get("automountServiceAccountToken") is False:
        return
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    lacking = [container for container in containers if not _has_mount(container)]
    if not lacking:
        return
    volume = next((entry for entry in spec.get("volumes") or [] if entry["name"].startswith(_VOLUME_PREFIX)), None)
    if volume is None:
        volume = _token_volume()
        spec["volumes"] = [*(spec.get("volumes") or []), volume]
    for container in lacking:
        mount = {"name": volume["name"], "mountPath": _MOUNT_PATH, "readOnly": True}
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]


def _has_mount(container: Obj) -> bool:
    return any(mount.get("mountPath") == _MOUNT_PATH for mount in container.get("volumeMounts") or ())


def _token_volume() -> Obj:
    reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": reference}]}},
    ]
    return {"name": f"{_VOLUME_PREFIX}{suffix()}", "projected": {"sources": sources, "defaultMode": 420}}


def _tolerate(spec: Obj) -> None:
    present = list(spec.get("tolerations") or [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(entry.get("key") in (key, None) and entry.get("effect") in ("NoExecute", None) for entry in present):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            present.append({**toleration, "tolerationSeconds": _TOLERATION_SECONDS})
    spec["tolerations"] = present
