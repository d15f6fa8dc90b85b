"""What Istio's webhooks made of a pod, read from the annotations that the API server gives its audit events.

istiod itself logs of a call only that there was one. The annotations, from Kubernetes' reference of audit annotations:
`mutation.webhook.admission.k8s.io/round_N_index_M` is there for every call, and the same key with `failed-open.`
before it where the call failed and the policy was Ignore.
"""

import datetime
import json
from urllib.parse import parse_qs, urlsplit

from tests.cluster.api import Object
from tests.cluster.replicas import Admission

MUTATION = "mutation.webhook.admission.k8s.io/"
FAILED_OPEN = "failed-open."


def admission(event: Object, configuration: str) -> Admission | None:
    """The admission that an audit event tells of, or None where the configuration's webhooks did not see a pod.

    Its outcome is injected, skipped, failed-open, denied or error; its time that of the whole request; its uid the
    audit id. A pod whose name the API server makes up has none here.
    """
    reference, notes = event["objectRef"], event.get("annotations", {})
    key = _called(notes, configuration)
    if key is None or reference["resource"] != "pods" or "subresource" in reference:
        return None
    began, ended = _moment(event["requestReceivedTimestamp"]), _moment(event["stageTimestamp"])
    return Admission(
        time=began.timestamp(),
        milliseconds=(ended - began).total_seconds() * 1000,
        outcome=_outcome(notes, key, event["responseStatus"]),
        dry_run="dryRun" in parse_qs(urlsplit(event["requestURI"]).query),
        namespace=reference["namespace"],
        name=reference.get("name", ""),
        user=event["user"]["username"],
        uid=event["auditID"],
    )


def configurations(event: Object) -> set[str]:
    """The MutatingWebhookConfigurations whose webhooks the API server called for what an audit event tells of."""
    notes = event.get("annotations", {})
    return {json.loads(notes[key])["configuration"] for key in notes if key.startswith(MUTATION)}


def _called(notes: Object, configuration: str) -> str | None:
    calls = (key for key in notes if key.startswith(MUTATION))
    return next((key for key in calls if json.loads(notes[key])["configuration"] == configuration), None)


def _outcome(notes: Object, key: str, status: Object) -> str:
    if json.loads(notes[key])["mutated"]:
        return "injected"
    if FAILED_OPEN + key in notes:
        return "failed-open"
    if status["code"] < 400:
        return "skipped"
    return "denied" if "denied the request" in status.get("message", "") else "error"


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
