"""The workload's half of `decide()`: pods that were never created. Pure.

The principles stand in `remesh.decide`, which calls this.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from remesh.classify import about_other_pod, base_class, classify, webhook_named
from remesh.meshes import Expect, Profiles
from remesh.models import Action, BaseClass, Decision, FailureClass, Observed, Probe
from remesh.objects import PodTemplate, Workload
from remesh.policy import Policy
from remesh.sidecars import Claim, NamedInjector, asked_for, claims_of, named_injector, profile_named, surroundings
from remesh.tally import COUNTED_KINDS, Counts, counts, failure_text, never_looked_at, parse_time
from remesh.verdicts import PERSISTENT, answer, closed, denied_by_policy, leaving, short, terminating

NUDGED_KINDS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"})
"""Kinds whose controller syncs at once when the object's metadata changes: measured for each."""

JOB_BACKOFF_SECONDS: Final = 600.0
"""Longest pause of the Job controller between failed pods (10 min, kube-controller-manager)."""

_AHEAD: Final = timedelta(minutes=1)
"""An object created later than this from now was stamped before a clock went back; its age says nothing."""

_UNINVOLVED: Final = frozenset({"no_injector_involved", "opted_out", "host_network"})

_HEALTHY: Final = answer(FailureClass.HEALTHY, Action.NONE, "healthy", "it has all the pods that it asks for")
_DELETED: Final = answer(FailureClass.HEALTHY, Action.NONE, "terminating", "it is being deleted")
_NOT_OURS: Final = answer(
    FailureClass.NOT_APPLICABLE, Action.NONE, "kind_not_watched", "it creates no pods that remesh could look after"
)


def of_workload(observed: Observed, workload: Workload, policy: Policy, profiles: Profiles, now: datetime) -> Decision:
    """What is wrong with one workload and what is right to do now. Healthy ones are answered first."""
    if workload.metadata.deletion_timestamp is not None:
        return _DELETED
    text = observed.message or failure_text(workload)
    if workload.kind not in COUNTED_KINDS:
        return _of_other_kind(observed, workload, text, profiles)
    tally = counts(workload, observed.current)
    if not tally.missing and not (text and about_other_pod(text)):
        return _HEALTHY
    return _Refusal(observed, workload, policy, profiles, text, tally, now).decide()


def _of_other_kind(observed: Observed, workload: Workload, text: str, profiles: Profiles) -> Decision:
    """Kinds that have no pods of their own to count: what failed is the object itself, or its Jobs."""
    if text:
        failure = classify(text)
        if failure is FailureClass.NAMESPACE_TERMINATING or terminating(observed.namespace):
            return leaving(failure)
        if failure is FailureClass.WEBHOOK_DENIED and named_injector(text, observed, profiles) is None:
            return denied_by_policy(failure)
        reason = f"{workload.kind} is no kind that can be nudged: {short(text)}"
        return answer(failure, Action.REPORT_ONLY, "kind_not_nudged", reason)
    down = observed.health.probe is Probe.FAILS
    if workload.kind == "CronJob" and (down or observed.notes.get("unfinished_jobs")):
        failure = FailureClass.WEBHOOK_CALL_FAILED if down else FailureClass.STUCK_SILENT
        reason = "its Jobs pile up and would all start together; each Job is looked after by itself"
        return answer(failure, Action.REPORT_ONLY, "jobs_pile_up", reason)
    return _NOT_OURS


@dataclass(slots=True)
class _Refusal:
    """A workload that lacks pods, and everything that is asked about it."""

    observed: Observed
    workload: Workload
    policy: Policy
    profiles: Profiles
    text: str
    tally: Counts
    now: datetime

    def decide(self) -> Decision:
        failure = classify(self.text) if self.text else FailureClass.STUCK_SILENT
        if failure is FailureClass.NAMESPACE_TERMINATING or terminating(self.observed.namespace):
            return leaving(failure)
        if not self.text:
            return self._without_text()
        named = named_injector(self.text, self.observed, self.profiles)
        if failure is FailureClass.WEBHOOK_DENIED:
            return self._injector_denied(named) if named else denied_by_policy(failure)
        unnamed = failure is FailureClass.API_TIMEOUT or webhook_named(self.text) is None
        if failure is not FailureClass.API_TIMEOUT and base_class(failure) is not BaseClass.WEBHOOK_INFRA:
            return self._report(failure, "not_an_outage", f"no injector's outage: {short(self.text)}")
        return self._off_limits(failure, named) or (
            self._of_unnamed(failure) if unnamed else self._of_named(failure, named)
        )

    # What is never repaired, whatever the trouble.

    def _off_limits(self, failure: FailureClass, named: NamedInjector | None) -> Decision | None:
        scope, namespace = self.policy.scope, self.workload.metadata.namespace
        if namespace in scope.protected_namespaces:
            return self._report(failure, "protected_namespace", f"{namespace} is protected by policy", named)
        if scope.namespaces and namespace not in scope.namespaces:
            return self._report(failure, "out_of_scope", f"{namespace} is not among the policy's namespaces", named)
        if about_other_pod(self.text):
            return self._report(failure, "other_pod", "the refused pod is not one of its own", named)
        if self.workload.kind not in NUDGED_KINDS and not failure_text(self.workload):
            reason = f"the failed request was one for the {self.workload.kind} itself, not for its pods"
            return self._report(failure, "kind_not_nudged", reason, named)
        if named is not None and self._is_injector(named):
            reason = (
                f"it is {named.profile.title}'s injector itself, refused by its own webhook: waiting never ends; "
                "exclude its namespace from the webhook"
            )
            return self._report(failure, "injector_blocks_itself", reason, named)
        limit = self.policy.repair.max_attempts
        if self.observed.attempts >= limit:
            return self._report(failure, "attempts_used_up", f"{self.observed.attempts} repairs failed", named)
        return None

    def _is_injector(self, named: NamedInjector) -> bool:
        """The injector's own workload: its labels, or a name that its Service shares, where the Service lives."""
        meta = self.workload.metadata
        if meta.namespace != named.ref.service_namespace:
            return False
        template = self.workload.spec.template
        labels = template.metadata.labels if template else None
        if named.profile.is_injector(meta.namespace, labels, named.ref.service_namespace):
            return True
        owner = meta.controller
        return _stem(named.ref.service_name) in {_stem(meta.name), _stem(owner.name) if owner else ""}

    # With a text that names a webhook.

    def _injector_denied(self, named: NamedInjector) -> Decision:
        reason = f"{named.profile.title}'s injector answered no, so retrying cannot help: {short(self.text)}"
        return self._report(FailureClass.WEBHOOK_DENIED, "injector_denied", reason, named)

    def _of_named(self, failure: FailureClass, named: NamedInjector | None) -> Decision:
        if named is None:
            return self._of_unknown(failure)
        claim = next((each for each in self._claims() if each.profile is named.profile), None)
        if self._host_network():
            return self._report(failure, "host_network", "its pods are on the host's network", named)
        if claim is not None and claim.answer is Expect.REFUSED:
            return self._report(failure, "opted_out", claim.reason, named)
        expected = None if claim is None else claim.answer is Expect.YES
        return self._gated(failure, named, expected)

    def _of_unknown(self, failure: FailureClass) -> Decision:
        """A webhook that no profile knows, or one that is not there any more."""
        name = webhook_named(self.text) or ""
        live = {webhook.name for _, webhook in self.observed.webhooks or ()}
        asked = asked_for(self._claims())
        if name not in live and asked and profile_named(self.text, self.profiles) is not None:
            return self._gated(failure, NamedInjector(asked[0].profile, asked[0].injector), True)
        if name not in live and self.observed.webhooks is not None and self.observed.webhooks_complete:
            return self._report(failure, "webhook_gone", f"webhook {name} is not there any more; nothing holds it back")
        return self._report(failure, "not_an_injector", f"webhook {name} is no injector that remesh knows")

    # With a text that names none.

    def _of_unnamed(self, failure: FailureClass) -> Decision:
        """The controller tries again by itself, unless it is an old one that swallowed a time-out."""
        seconds = self._stuck_seconds()
        limit = self.policy.detection.api_timeout_seconds
        decision = self._of_suspect(failure)
        if decision.injector is None and seconds is not None and seconds < limit:
            return self._too_young(failure, seconds, limit)
        return decision

    def _of_suspect(self, failure: FailureClass) -> Decision:
        """No webhook is named, so the injector that had to be asked is the suspect."""
        if self._host_network():
            return self._report(failure, "host_network", "its pods are on the host's network")
        claims = self._claims()
        asked = asked_for(claims)
        if asked:
            return self._gated(failure, NamedInjector(asked[0].profile, asked[0].injector), True)
        refused = next((each for each in claims if each.answer is Expect.REFUSED), None)
        if refused is not None:
            return self._report(failure, "opted_out", refused.reason)
        if self.observed.health.probe is Probe.PASSES:
            return self._gated(failure, None, None)
        if self.observed.health.probe is Probe.FAILS and self.observed.webhooks is None:
            return self._gated(failure, None, None)
        return self._report(failure, "no_injector_involved", "no injector had to be asked for its pods")

    # Without any text.

    def _without_text(self) -> Decision:
        failure = FailureClass.STUCK_SILENT
        if self.observed.exists is False:
            return answer(FailureClass.HEALTHY, Action.NONE, "not_created", "it is not in the cluster yet")
        if self.workload.kind not in NUDGED_KINDS:
            reason = "its ReplicaSets are looked after by themselves"
            return answer(FailureClass.HEALTHY, Action.NONE, "see_replicaset", reason)
        if self._waits_for_itself():
            reason = "it creates its pods one by one and waits for the last one to be Ready"
            return answer(FailureClass.HEALTHY, Action.NONE, "ordered_start", reason)
        seconds, limit = self._stuck_seconds(), self._patience()
        if seconds is not None and seconds < limit:
            return self._too_young(failure, seconds, limit)
        failure = self._inferred()
        decision = self._of_suspect(failure)
        if decision.code in _UNINVOLVED and not self._known_silent():
            reason = f"it lacks {self.tally.missing} pods, but not for an injector's sake: {decision.reason}"
            return answer(FailureClass.STUCK_SILENT, Action.NONE, decision.code, reason)
        return self._off_limits(failure, None) or decision

    def _inferred(self) -> FailureClass:
        probe = self.observed.health.probe
        if probe is Probe.FAILS:
            return FailureClass.WEBHOOK_CALL_FAILED
        if probe is Probe.PASSES and self.observed.no_events:
            return FailureClass.API_TIMEOUT
        return FailureClass.STUCK_SILENT

    def _known_silent(self) -> bool:
        return self.observed.no_events and self.observed.webhooks is None

    def _waits_for_itself(self) -> bool:
        """An ordered StatefulSet whose last pod is not Ready yet is not refused anything."""
        if self.workload.kind != "StatefulSet" or self.workload.spec.pod_management_policy == "Parallel":
            return False
        return self.tally.current > 0 and self.tally.ready < self.tally.current

    def _patience(self) -> float:
        detection = self.policy.detection
        if self.workload.kind == "Job" and self.workload.status.failed:
            return JOB_BACKOFF_SECONDS
        with_condition = self.workload.kind in ("ReplicaSet", "ReplicationController", "Deployment")
        return detection.silent_seconds if with_condition else detection.no_condition_seconds

    def _stuck_seconds(self) -> float | None:
        """How long it has lacked pods; judged by its age if nobody watched; None if not even that is known."""
        if self.observed.stuck_seconds is not None:
            return self.observed.stuck_seconds
        created = parse_time(self.workload.metadata.creation_timestamp)
        if created is None or created > self.now + _AHEAD:
            return None
        return (self.now - created).total_seconds()

    # The gate.

    def _gated(self, failure: FailureClass, named: NamedInjector | None, expected: bool | None) -> Decision:
        """Nudge if the probe passes now, else wait or report, to be nudged once it does."""
        health = self.observed.health
        who = f"{named.profile.title}'s injector" if named else "admission"
        if health.probe is Probe.PASSES:
            if failure is FailureClass.WEBHOOK_BAD_RESPONSE and not health.own_template:
                reason = f"{who} works, yet answers this template badly: it would do so again"
                return self._report(failure, "template_answered_badly", reason, named)
            if self.observed.attempts and not health.own_template:
                reason = f"{self.observed.attempts} repairs failed although {who} works: the template may be the cause"
                return self._say(
                    failure, Action.REPORT_ONLY, "attempt_failed", reason, after=Action.NUDGE_OWNER, named=named
                )
            reason = f"{who} works again, and its controller may wait up to 1000 s before it tries"
            return self._say(failure, Action.NUDGE_OWNER, "probe_passes", reason, named=named, expected=expected)
        code, state = closed(self.observed)
        if failure in PERSISTENT:
            code, action = "needs_correction", Action.REPORT_ONLY
            reason = f"{who} {state}; somebody has to correct it: {short(self.text)}"
        elif self.observed.attempts and health.probe is Probe.FAILS:
            code, action = "attempt_failed", Action.REPORT_ONLY
            reason = f"{self.observed.attempts} repairs failed, and {who} {state}"
        else:
            action, reason = Action.WAIT_FOR_INJECTOR, f"{who} {state}"
        return self._say(failure, action, code, reason, after=Action.NUDGE_OWNER, named=named, expected=expected)

    # Small things.

    def _claims(self) -> list[Claim]:
        template = self.workload.spec.template or PodTemplate()
        return claims_of(template, self.observed.namespace, surroundings(self.observed, self.profiles))

    def _host_network(self) -> bool:
        template = self.workload.spec.template
        return template is not None and template.spec.host_network

    def _too_young(self, failure: FailureClass, seconds: float, limit: float) -> Decision:
        seen = "; its controller has not looked at it yet" if never_looked_at(self.workload) else ""
        reason = f"it has lacked {self.tally.missing} pods for {max(0.0, seconds):.0f} s of {limit:.0f} s{seen}"
        return self._say(failure, Action.NONE, "too_young", reason)

    def _report(self, failure: FailureClass, code: str, reason: str, named: NamedInjector | None = None) -> Decision:
        return self._say(failure, Action.REPORT_ONLY, code, reason, named=named)

    def _say(
        self,
        failure: FailureClass,
        action: Action,
        code: str,
        reason: str,
        *,
        after: Action = Action.NONE,
        named: NamedInjector | None = None,
        expected: bool | None = None,
    ) -> Decision:
        return Decision(
            failure_class=failure,
            action=action,
            code=code,
            reason=reason,
            after_recovery=after,
            injector=named.ref if named else None,
            missing=self.tally.missing,
            sidecar_expected=expected,
        )


_ROLE_WORDS: Final = frozenset({"svc", "service", "webhook", "server", "controller", "manager", "deployment"})


def _stem(name: str) -> str:
    """A name without the words that tell a Service from its Deployment."""
    words = name.split("-")
    while len(words) > 1 and words[-1] in _ROLE_WORDS:
        words.pop()
    return "-".join(words)
