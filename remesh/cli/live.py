"""`remesh explain KIND/NAME`: the steps from an object to its decision, on a live cluster."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from remesh.admission import would_call
from remesh.cli.options import Common, Output
from remesh.cli.render import Table, emit, line, say
from remesh.cli.session import Session, utc_now
from remesh.cli.survey import Judged, Survey
from remesh.cli.targets import parse_targets
from remesh.cli.text import age, age_of, count, one_line
from remesh.cli.words import verdict
from remesh.decide import counts
from remesh.errors import BrokerError
from remesh.meshes import MeshProfile
from remesh.models import Action, Decision, FailureClass, Probe
from remesh.objects import Namespace, Pod, Webhook, Workload

NAME_LABEL = "kubernetes.io/metadata.name"  # says what the name says
WHOLE = 20_000  # characters: this is the page for the API server's full words
NAMES_SHOWN = 5  # bare pods named before "and 12 more"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was looked at, and what was seen."""

    name: str
    text: str

    def document(self) -> dict[str, str]:
        """For JSON and YAML."""
        return {"step": self.name, "text": self.text}


def explain_targets(common: Common, targets: list[str]) -> None:
    """Print the steps of every target."""
    session = Session(common)
    wanted = parse_targets(targets)
    survey = Survey(session)
    looked = [each for own in survey.look_at(wanted, session) for each in (own, *_examples(own))]
    explained = [Explanation(session, survey, each) for each in {each.ref.uid: each for each in looked}.values()]
    documents = [each.document() for each in explained]
    if common.format is not Output.TABLE:
        emit(common.format, documents, Table((), []), empty="", kind="ExplanationList")
        return
    for number, each in enumerate(explained):
        if number:
            line()
        each.show()


def _examples(judged: Judged) -> list[Judged]:
    """Of a workload's bare pods one for each thing that is said of them: hundreds mostly share one."""
    return list({(each.decision.action, each.decision.code): each for each in reversed(judged.bare)}.values())


class Explanation:
    """Everything about one object. Made by looking; nothing is written."""

    def __init__(self, session: Session, survey: Survey, judged: Judged) -> None:
        self._session = session
        self._survey = survey
        self._first = judged
        self.judged = survey.prove(judged)
        self.steps = list(self._steps())

    def show(self) -> None:
        """For people."""
        width = max(len(step.name) for step in self.steps)
        say(str(self.judged.ref))
        for step in self.steps:
            say(f"  {step.name.ljust(width)}  {step.text}")

    def document(self) -> dict[str, Any]:
        """For JSON and YAML."""
        return {
            "object": self.judged.ref.model_dump(mode="json"),
            "steps": [step.document() for step in self.steps],
            "decision": self._told.model_dump(mode="json"),
            "bare_pods": [each.ref.name for each in self.judged.bare],
        }

    @property
    def _told(self) -> Decision:
        """What is said of the object: of a workload that is fine but for its bare pods, what is said of those."""
        if self.judged.stands_for_itself:
            return self.judged.decision
        return self.judged.bare[0].decision.model_copy(update={"missing": len(self.judged.bare)})

    def _steps(self) -> Iterator[Step]:
        yield from self._object()
        yield self._namespace()
        yield from self._webhooks()
        yield from self._injector()
        yield self._dry_run()
        yield self._decision()
        yield from self._ledger()

    def _object(self) -> Iterator[Step]:
        obj = self.judged.obj
        controller = obj.metadata.controller
        if isinstance(obj, Pod):
            owner = f"owned by {controller.kind}/{controller.name}" if controller else "without a controller"
            yield Step(
                "object", f"{owner}; phase {obj.status.phase or 'unknown'}, {'Ready' if obj.ready else 'not Ready'}"
            )
            return
        owned = f"owned by {controller.kind}/{controller.name}; " if controller else ""
        yield Step("object", owned + self._numbers(obj))
        if self.judged.bare:
            yield Step("pods", self._bare_pods())
        if self.judged.observed.message:
            yield Step("condition", f"ReplicaFailure: {one_line(self.judged.observed.message, WHOLE)}")

    def _numbers(self, workload: Workload) -> str:
        numbers = counts(workload, self.judged.observed.current)
        text = f"{numbers.desired} wanted, {numbers.current} there, {numbers.ready} ready"
        since = self.judged.since
        lacking = numbers.current < numbers.desired
        return text + (f"; lacking pods for {age_of(since, utc_now())}" if lacking and since else "")

    def _bare_pods(self) -> str:
        """`3 of its 3 pods lack the sidecar: web-1, web-2, web-3`."""
        bare = self.judged.bare
        names = ", ".join(each.ref.name for each in bare[:NAMES_SHOWN])
        more = f" and {len(bare) - NAMES_SHOWN} more" if len(bare) > NAMES_SHOWN else ""
        lack = "lacks" if len(bare) == 1 else "lack"
        return f"{len(bare)} of its {count(self.judged.pods, 'pod')} {lack} the sidecar: {names}{more}"

    def _namespace(self) -> Step:
        name = self.judged.ref.namespace
        found = self.judged.observed.namespace
        if found is None:
            return Step("namespace", f"{name}: not there")
        return Step(
            "namespace", f"{name}: {namespace_facts(found, self._session, self.judged.observed.webhooks or ())}"
        )

    def _webhooks(self) -> Iterator[Step]:
        for configuration, webhook in self.judged.observed.webhooks or ():
            yield self._webhook(configuration, webhook)

    def _webhook(self, configuration: str, webhook: Webhook) -> Step:
        profile = self._session.profiles.for_webhook(configuration, webhook)
        match = would_call(webhook, self.judged.observed.namespace, pod_labels(self.judged.obj))
        sees = {True: "sees its pods", False: "does not see its pods", None: "may see its pods"}[match.matches]
        whose = f"{profile.name}'s injector" if profile else "no injector"
        text = f"{configuration}/{webhook.name} ({whose}) {sees}: {match.reason}"
        if profile is not None and match.matches is not False:
            text += f"; {self._expectation(profile)}"
        return Step("webhook", text)

    def _expectation(self, profile: Any) -> str:
        obj = self.judged.obj
        meta, spec = _template_of(obj)
        return str(profile.expects(meta.labels, meta.annotations, self.judged.observed.namespace, spec).reason)

    def _injector(self) -> Iterator[Step]:
        injector = self._first.decision.injector
        if injector is None:
            return
        if not injector.service_name:
            yield Step("injector", f"{injector.mesh}, reached by a URL")
            return
        found = self._survey.view.endpoints(injector.service_namespace, injector.service_name)
        quorum = self._session.policy.gate.quorum
        text = f"{injector.key}: {found.ready} of {count(found.total, 'endpoint')} ready, {quorum} needed"
        yield Step("injector", text)

    def _dry_run(self) -> Step:
        probe = self.judged.probe
        if probe is None:
            other = "see that of its pods" if self.judged.bare else "a repair would not follow from it"
            return Step("dry run", f"not needed: {other}")
        verdict = {Probe.PASSES: "passes", Probe.FAILS: "fails", Probe.UNKNOWN: "inconclusive"}[probe.probe]
        message = f" ({one_line(probe.message, WHOLE)})" if probe.message else ""
        return Step("dry run", f"{verdict} after {probe.seconds:.2f} s: {probe.reason}{message}")

    def _decision(self) -> Step:
        judged = self.judged
        if judged.stands_for_itself:
            held = judged.not_now if judged.decision.action is Action.RECREATE_POD else None
            silent = self._first.decision.failure_class is FailureClass.STUCK_SILENT
            text = verdict(judged.decision, not_now=held.reason if held else "", silent=silent)
        else:
            what = f"{len(judged.bare)} of its {count(judged.pods, 'pod')}"
            text = f"a finding: {what} without the sidecar; what would be done is said of the pods below"
        return Step("decision", one_line(text, WHOLE))

    def _ledger(self) -> Iterator[Step]:
        try:
            yield Step("ledger", "; ".join(self._remembered()))
        except BrokerError as error:
            yield Step("ledger", f"not asked: {one_line(str(error))}")

    def _remembered(self) -> Iterator[str]:
        """Attempts and quarantine are counted by the owner and its template, findings by the object."""
        ledger, uid, template_hash = self._session.ledger, self.judged.ref.uid, self.judged.template_hash
        counted_by = self.judged.owner.uid if self.judged.owner else uid
        failures = ledger.failures(counted_by, template_hash)
        yield f"{count(failures.count, 'failed repair')} of this template"
        if failures.cooldown_left > 0:
            yield f"cools down for {age(failures.cooldown_left)}"
        quarantine = ledger.quarantined(counted_by, template_hash)
        if quarantine is not None:
            yield f"quarantined since {quarantine.since:%Y-%m-%d %H:%M:%SZ}"
        known = next((each for each in ledger.open_findings() if each.finding.ref.uid == uid), None)
        if known is not None:
            yield f"finding {known.finding.id} is {known.state}"
            outcome = ledger.outcome(known.finding.id)
            if outcome is not None:
                yield f"last outcome: {outcome.result.value}, {outcome.reason}"


def namespace_facts(namespace: Namespace, session: Session, webhooks: Iterable[tuple[str, Webhook]]) -> str:
    """What matters of a namespace, in one line."""
    name = namespace.metadata.name
    facts = []
    if namespace.terminating:
        facts.append("terminating")
    if name in session.policy.scope.protected_namespaces:
        facts.append("protected by the policy")
    if session.policy.scope.namespaces and name not in session.policy.scope.namespaces:
        facts.append("outside the policy's namespaces")
    read = _keys_read(session.profiles.all, webhooks)
    said = {**(namespace.metadata.labels or {}), **(namespace.metadata.annotations or {})}
    shown = [f"{key}={value}" for key, value in sorted(said.items()) if key in read and key != NAME_LABEL]
    return one_line("; ".join([*facts, ", ".join(shown) or "no label or annotation asks for a mesh"]))


def _keys_read(profiles: Iterable[MeshProfile], webhooks: Iterable[tuple[str, Webhook]]) -> set[str]:
    """Labels and annotations of namespaces that meshes or webhooks read; all others are nobody's business here."""
    keys: set[str] = set()
    for profile in profiles:
        keys.update(place.key for place in profile.asks.places)
        keys.update(profile.never.namespace_labels)
    for _, webhook in webhooks:
        selector = webhook.namespace_selector
        if selector is not None:
            keys.update(selector.match_labels or {})
            keys.update(each.key for each in selector.match_expressions or ())
    return keys


def pod_labels(obj: Workload | Pod) -> dict[str, str]:
    """Labels that webhooks see on its pods."""
    return _template_of(obj)[0].labels or {}


def _template_of(obj: Workload | Pod) -> tuple[Any, Any]:
    """Metadata and spec of the pods: of the template, or of the pod itself."""
    if isinstance(obj, Pod):
        return obj.metadata, obj.spec
    if obj.spec.template is None:
        from remesh.objects import TemplateMeta

        return TemplateMeta(), None
    return obj.spec.template.metadata, obj.spec.template.spec
