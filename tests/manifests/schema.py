"""The chart's values.schema.json, made from the policy's models and the few shapes that the values have.

Unknown keys are refused everywhere, as in the policy file: a typing mistake must be seen and not ignored.
"""

import json
from collections.abc import Mapping
from typing import Any

from remesh.policy import Policy

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": "object"}
STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
# RFC 1123, as Kubernetes has it for the names of Secrets and classes; empty where there is none.
NAME: Schema = {"type": "string", "pattern": "^$|^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
PORTS: Schema = {"type": "array", "items": PORT}
QUANTITY: Schema = {"type": ["string", "number"], "pattern": "^[0-9.]+([EPTGMk]i?|m)?$"}
INTERVAL: Schema = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}
SECRET_KEY: Schema = {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"enum": list(values)}


def whole(minimum: int, maximum: int) -> Schema:
    """A whole number."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def items(of: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": of}


def closed(**properties: Schema) -> Schema:
    """An object with these keys and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def needing(schema: Schema, *keys: str) -> Schema:
    """The same, with keys that must be there."""
    return {**schema, "required": list(keys)}


NAMED_SECRET = closed(existingSecret=NAME, key=SECRET_KEY)
RESOURCES = closed(
    requests={"type": "object", "additionalProperties": QUANTITY},
    limits={"type": "object", "additionalProperties": QUANTITY},
    claims=items(ANYTHING),
)
PLACEMENT = {"nodeSelector": STRINGS, "tolerations": items(ANYTHING), "affinity": ANYTHING}
EXTRA_ENV = items(needing(closed(name=TEXT, value=TEXT, valueFrom=ANYTHING), "name"))
PULL_POLICY = one_of("Always", "IfNotPresent", "Never")


def schema() -> Schema:
    """The whole schema."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **closed(**_root())}


def text() -> str:
    """As the file has it."""
    return json.dumps(schema(), indent=2) + "\n"


def _root() -> dict[str, Schema]:
    return {
        "nameOverride": {"type": "string", "maxLength": 40},
        "fullnameOverride": {"type": "string", "maxLength": 40},
        "global": ANYTHING,  # Helm's own
        "cluster": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"},
        "mode": one_of("observe", "repair"),
        "policy": _policy(),
        "meshes": {
            "type": "object",
            "propertyNames": {"pattern": r"^[-_a-z0-9]+\.toml$"},
            "additionalProperties": TEXT,
        },
        "logFormat": one_of("text", "json"),
        "logLevel": one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "extraVolumes": items(needing(ANYTHING, "name")),
        "extraVolumeMounts": items(needing(ANYTHING, "name", "mountPath")),
        "namespace": closed(create=FLAG),
        "image": closed(
            repository={"type": "string", "minLength": 1},
            tag=TEXT,
            digest={"type": "string", "pattern": "^$|^sha256:[0-9a-f]{64}$"},
            pullPolicy=PULL_POLICY,
        ),
        "imagePullSecrets": items(needing(closed(name=TEXT), "name")),
        "watcher": closed(replicas=whole(1, 10), shards=whole(1, 100), **_process()),
        "worker": closed(
            replicas=whole(1, 100),
            concurrency=whole(1, 256),
            terminationGracePeriodSeconds=whole(60, 600),
            **_process(),
        ),
        "redis": _redis(),
        "externalRedis": NAMED_SECRET,
        "broker": NAMED_SECRET,
        "flower": closed(
            enabled=FLAG,
            existingSecret=NAME,
            key=SECRET_KEY,
            extraArgs=items(TEXT),
            resources=RESOURCES,
            extraEnv=EXTRA_ENV,
            **PLACEMENT,
        ),
        "signingKey": NAMED_SECRET,
        "rbac": closed(
            create=FLAG,
            evictions=FLAG,
            customOwners=items(needing(closed(apiGroups=items(TEXT), resources=items(TEXT)), "apiGroups", "resources")),
        ),
        "admissionPolicy": closed(enabled=FLAG),
        "kubernetesEvents": FLAG,
        "metrics": closed(port=PORT),
        "podDisruptionBudgets": closed(enabled=FLAG),
        "networkPolicy": closed(
            enabled=FLAG,
            apiServerPorts=PORTS,
            brokerPorts=PORTS,
            metricsFrom=items(ANYTHING),
            flowerFrom=items(ANYTHING),
            extraEgress=items(ANYTHING),
        ),
        "priorityClass": closed(create=FLAG, value=whole(-1_000_000_000, 1_000_000_000)),
        "priorityClassName": NAME,
        "serviceMonitor": closed(
            enabled=FLAG, interval={"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}, labels=STRINGS
        ),
        "prometheusRule": closed(enabled=FLAG, labels=STRINGS),
        "dashboard": closed(enabled=FLAG, labels=STRINGS),
    }


def _process() -> dict[str, Schema]:
    return {
        "resources": RESOURCES,
        "extraEnv": EXTRA_ENV,
        "podAnnotations": STRINGS,
        "podLabels": STRINGS,
        **PLACEMENT,
    }


def _redis() -> Schema:
    return closed(
        enabled=FLAG,
        image={"type": "string", "minLength": 1},
        imagePullPolicy=PULL_POLICY,
        existingSecret=NAME,
        maxmemory={"type": "string", "pattern": "^[1-9][0-9]*(kb|mb|gb)$"},
        persistence=closed(
            enabled=FLAG, size=QUANTITY, storageClass=NAME, accessMode=one_of("ReadWriteOnce", "ReadWriteOncePod")
        ),
        resources=RESOURCES,
        **PLACEMENT,
    )


def _policy() -> Schema:
    """The policy's own sections and bounds. Its mode is the chart's, which grants the rights that go with it."""
    model = Policy.model_json_schema()
    resolved = _resolved(model, model["$defs"])
    resolved["properties"].pop("mode")
    return {"type": "object", "additionalProperties": False, "properties": resolved["properties"]}


def _resolved(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The model's schema without references, and without what is not a bound."""
    if isinstance(node, list):
        return [_resolved(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _resolved(definitions[node["$ref"].rpartition("/")[2]], definitions)
    dropped = ("title", "default", "description", "$defs")
    return {
        key: {name: _resolved(each, definitions) for name, each in value.items()}
        if key == "properties"
        else _resolved(value, definitions)
        for key, value in node.items()
        if key not in dropped
    }
