"""One mesh's profile: its shape as data, and the questions that it answers. Pure.

Loaded and kept together by `remesh.meshes`, which says what a profile is for. Everything that does not depend on the
pod (word lists, globs, sentences) is made once, because 150,000 pods may be asked about.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import translate
from functools import cached_property
from re import Pattern
from re import compile as compile_pattern
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from remesh.objects import (
    Container,
    LabelSelector,
    Namespace,
    Pod,
    PodSpec,
    RuleWithOperations,
    SelectorRequirement,
    ServiceReference,
    Webhook,
    WebhookClientConfig,
)

StringMap = Mapping[str, str]
_EMPTY: Final[StringMap] = {}

# What Go's strconv.ParseBool takes; anything else is an error there.
_GO_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_GO_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
# YAML 1.1's words, in any case, as Dapr reads them.
_YAML_TRUE: Final = frozenset({"y", "yes", "true", "on", "1"})
_YAML_FALSE: Final = frozenset({"n", "no", "false", "off", "0"})


class Expect(StrEnum):
    """What a mesh's injector does with a pod that it sees."""

    YES = "yes"  # it injects
    NO = "no"  # nobody asks for it
    REFUSED = "refused"  # somebody opted out by its own word
    NEVER = "never"  # its injector leaves such pods alone whatever they say


class Expectation(NamedTuple):
    """The answer, and why in one sentence."""

    answer: Expect
    reason: str
    by_default: bool = False  # True: nobody said anything; the injector takes what its webhook sees


class Section(BaseModel):
    """Base of all parts of a profile: unknown keys are errors, so that a typing mistake is seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WebhookIdentity(Section):
    """By what the injector's webhook is recognised. Patterns are shell globs."""

    names: tuple[str, ...] = Field(min_length=1)
    not_names: tuple[str, ...] = ()
    """The same project's webhooks that inject nothing."""
    names_are_unique: bool = True
    """False if other software uses these names too: then the Service (and path) must match as well."""
    configurations: tuple[str, ...] = ()
    services: tuple[str, ...] = Field(min_length=1)
    paths: tuple[str, ...] = ()
    """If not empty, the Service counts only with one of these paths: one Service can serve several webhooks."""


class DefaultRequirement(Section):
    """One match expression of a default selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class DefaultWebhook(Section):
    """One webhook as the project's chart makes it, used only where the live ones are not known."""

    name: str
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    namespace_selector: tuple[DefaultRequirement, ...] = ()
    object_selector: tuple[DefaultRequirement, ...] = ()


class DefaultService(Section):
    """Where the injector's Service lives unless a release says otherwise."""

    namespace: str
    name: str
    path: str = ""


class Ask(Section):
    """One place where somebody can ask for a sidecar or refuse it. An empty value counts as absent."""

    on: Literal["pod", "namespace"]
    kind: Literal["annotation", "label"]
    key: str
    values: Literal["listed", "listed-any-case", "go-bool", "yaml-bool"] = "listed"
    yes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    otherwise: Literal["no", "next"] = "no"
    """What any other value means: not asked for, or the next place decides."""

    @cached_property
    def words(self) -> dict[str, Expect]:
        """Every value that is understood, in the case in which it is looked up."""
        yes, refused = {"go-bool": (_GO_TRUE, _GO_FALSE), "yaml-bool": (_YAML_TRUE, _YAML_FALSE)}.get(
            self.values, (frozenset(self.yes), frozenset(self.refused))
        )
        words = dict.fromkeys(refused, Expect.REFUSED) | dict.fromkeys(yes, Expect.YES)
        return {word.lower(): answer for word, answer in words.items()} if self.any_case else words

    @cached_property
    def any_case(self) -> bool:
        """True if the injector does not mind the case of the value."""
        return self.values in ("listed-any-case", "yaml-bool")

    @cached_property
    def where(self) -> str:
        """For reasons: `annotation linkerd.io/inject on the pod`."""
        return f"{self.kind} {self.key} on the {self.on}"


class Asks(Section):
    """Who asks for a sidecar: the first place that has a value decides."""

    places: tuple[Ask, ...] = ()
    default: Literal["yes", "no"] = "no"
    """What the injector does with a pod that it sees and for which nobody asks."""
    all_must_be_valid: bool = False
    """True if a value that is not understood anywhere makes the injector skip the pod."""


class Never(Section):
    """Pods that the injector leaves alone whatever they say. Items are `key` or `key=value`."""

    host_network: bool = False
    namespaces: tuple[str, ...] = ()
    namespace_labels: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    """Another mesh's proxies beside which it does not inject."""


class Mark(Section):
    """What only the webhook writes. Items are `key` or `key=value`; one of them is enough."""

    annotations: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    """Names (globs) in containers or initContainers."""
    placeholder_images: tuple[str, ...] = ()
    """Images that the webhook replaces: a sidecar that still has one was not injected."""


class InjectorPods(Section):
    """The injector's own pods, which remesh never touches."""

    labels: dict[str, str] = Field(default_factory=dict)


class MeshProfile(Section):
    """All that remesh knows of one mesh."""

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    title: str
    webhook: WebhookIdentity
    service: DefaultService
    defaults: tuple[DefaultWebhook, ...] = Field(min_length=1)
    asks: Asks = Asks()
    never: Never = Never()
    mark: Mark = Mark()
    injector: InjectorPods = InjectorPods()

    @model_validator(mode="after")
    def _mark_if_asked(self) -> "MeshProfile":
        mark = self.mark
        if (self.asks.places or self.asks.default == "yes") and not (
            mark.annotations or mark.labels or mark.containers
        ):
            raise ValueError("asks without a mark: nothing would prove that a pod was injected")
        return self

    def expects(
        self,
        labels: StringMap | None,
        annotations: StringMap | None,
        namespace: Namespace | None,
        spec: PodSpec | None,
    ) -> Expectation:
        """What the injector does with a pod that its webhook sees. `namespace` None counts as one without requests."""
        labels, annotations = labels or _EMPTY, annotations or _EMPTY
        return self._never(labels, namespace, spec) or self._asked(labels, annotations, namespace)

    def injected(self, pod: Pod) -> bool:
        """True if the webhook's mark is on the pod: in its metadata, its containers or its initContainers."""
        mark, spec = self._marks, pod.spec
        for group in (spec.containers, spec.init_containers):
            for container in group or ():
                if mark.names(container.name):
                    return container.image not in mark.placeholders
        return mark.on(pod.metadata.labels, mark.labels) or mark.on(pod.metadata.annotations, mark.annotations)

    def is_injector(self, namespace: str, labels: StringMap | None, service_namespace: str) -> bool:
        """True if a pod with these labels belongs to the injector itself, which serves from `service_namespace`."""
        wanted = self.injector.labels
        if not wanted or not labels or namespace != (service_namespace or self.service.namespace):
            return False
        return all(labels.get(key) == value for key, value in wanted.items())

    @cached_property
    def unasked(self) -> str:
        """The reason where nobody asks."""
        return f"neither pod nor namespace asks {self.title} for a sidecar"

    @cached_property
    def default_webhooks(self) -> tuple[Webhook, ...]:
        """The chart's webhooks, in the shape of live ones."""
        return tuple(_live_shape(each, self.service) for each in self.defaults)

    def _never(self, labels: StringMap, namespace: Namespace | None, spec: PodSpec | None) -> Expectation | None:
        never = self.never
        if spec is not None and never.host_network and spec.host_network:
            return self._answers["host_network"]
        if namespace is not None:
            if namespace.metadata.name in never.namespaces:
                return self._answers["namespace"]
            if never.namespace_labels and _holds(namespace.metadata.labels, self._never_items[0]):
                return self._answers["namespace_label"]
        if never.labels and _holds(labels, self._never_items[1]):
            return self._answers["label"]
        if never.containers and spec is not None and _has_container(spec, never.containers):
            return self._answers["container"]
        return None

    def _asked(self, labels: StringMap, annotations: StringMap, namespace: Namespace | None) -> Expectation:
        decided: Expectation | None = None
        for ask, answers in self._places:
            value = _value(ask, ask.kind, labels, annotations, namespace)
            if not value:
                continue
            answer = ask.words.get(value.lower() if ask.any_case else value)
            if answer is None:
                if self.asks.all_must_be_valid:
                    return _not_a_word(ask, value)
                if ask.otherwise == "no":
                    return decided or _not_a_word(ask, value)
            elif decided is None:
                decided = answers[answer]
                if not self.asks.all_must_be_valid:
                    break
        return decided or self._misplaced(labels, annotations, namespace) or self._answers["default"]

    def _misplaced(self, labels: StringMap, annotations: StringMap, namespace: Namespace | None) -> Expectation | None:
        """A request where this injector does not look: a label instead of an annotation, or the other way round."""
        if self.asks.default == "yes":
            return None
        for ask, _ in self._places:
            other = "label" if ask.kind == "annotation" else "annotation"
            if _value(ask, other, labels, annotations, namespace):
                reason = f"{other} {ask.key} on the {ask.on} does nothing: {self.title} reads the {ask.kind}"
                return Expectation(Expect.NO, reason)
        return None

    @cached_property
    def _places(self) -> tuple[tuple[Ask, dict[Expect, Expectation]], ...]:
        def answers(ask: Ask) -> dict[Expect, Expectation]:
            return {
                Expect.YES: Expectation(Expect.YES, f"{ask.where} asks {self.title} for a sidecar"),
                Expect.REFUSED: Expectation(Expect.REFUSED, f"{ask.where} opts out of {self.title}"),
            }

        return tuple((ask, answers(ask)) for ask in self.asks.places)

    @cached_property
    def _answers(self) -> dict[str, Expectation]:
        """Reasons that do not depend on the pod, made once."""
        never = f"{self.title} never injects"
        default = (
            Expectation(Expect.YES, f"{self.title} injects every pod that its webhook sees", True)
            if self.asks.default == "yes"
            else Expectation(Expect.NO, self.unasked, True)
        )
        return {
            "host_network": Expectation(Expect.NEVER, f"{never} pods on the host's network"),
            "namespace": Expectation(Expect.NEVER, f"{never} in this namespace"),
            "namespace_label": Expectation(Expect.NEVER, f"{never} in a namespace labelled like this one"),
            "label": Expectation(Expect.NEVER, f"{never} pods labelled like this one"),
            "container": Expectation(Expect.NEVER, f"{never} beside another proxy"),
            "default": default,
        }

    @cached_property
    def _never_items(self) -> tuple["_Items", "_Items"]:
        return _items(self.never.namespace_labels), _items(self.never.labels)

    @cached_property
    def _marks(self) -> "_Marks":
        return _Marks(self.mark)

    @cached_property
    def _globs(self) -> "_Globs":
        return _Globs(self.webhook)

    def serves(self, configuration: str, name: str, service: ServiceReference | None) -> bool:
        """Whether a webhook of this name, configuration and Service is this mesh's injector.

        A unique name is enough, because releases rename Services and configurations. Otherwise the Service must fit,
        and the name or the configuration with it.
        """
        globs = self._globs
        if any(glob.match(name) for glob in globs.not_names):
            return False
        named = any(glob.match(name) for glob in globs.names)
        if named and self.webhook.names_are_unique:
            return True
        if service is None or not any(glob.match(service.name) for glob in globs.services):
            return False
        if globs.paths and service.path and not any(glob.match(service.path) for glob in globs.paths):
            return False
        return named or any(glob.match(configuration) for glob in globs.configurations)


_Items = tuple[tuple[str, str | None], ...]


class _Globs:
    def __init__(self, identity: WebhookIdentity) -> None:
        self.names = _compiled(identity.names)
        self.not_names = _compiled(identity.not_names)
        self.configurations = _compiled(identity.configurations)
        self.services = _compiled(identity.services)
        self.paths = _compiled(identity.paths)


class _Marks:
    """A mark, made ready for 150,000 pods."""

    def __init__(self, mark: Mark) -> None:
        self.annotations = _items(mark.annotations)
        self.labels = _items(mark.labels)
        self.placeholders = frozenset(mark.placeholder_images)
        self._exact = frozenset(name for name in mark.containers if not _is_glob(name))
        self._globs = _compiled(name for name in mark.containers if _is_glob(name))

    def names(self, container: str) -> bool:
        return container in self._exact or any(glob.match(container) for glob in self._globs)

    @staticmethod
    def on(values: StringMap | None, items: _Items) -> bool:
        return bool(values and items) and _holds(values, items)


def _is_glob(text: str) -> bool:
    return any(character in text for character in "*?[")


def _compiled(globs: Iterable[str]) -> tuple[Pattern[str], ...]:
    return tuple(compile_pattern(translate(glob)) for glob in globs)


def _items(items: Iterable[str]) -> _Items:
    split = (item.partition("=") for item in items)
    return tuple((key, value if equals else None) for key, equals, value in split)


def _holds(values: StringMap | None, items: _Items) -> bool:
    if not values:
        return False
    return any(key in values and (wanted is None or values[key] == wanted) for key, wanted in items)


def _has_container(spec: PodSpec, names: tuple[str, ...]) -> bool:
    containers: Iterable[Container] = (*(spec.containers or ()), *(spec.init_containers or ()))
    return any(container.name in names for container in containers)


def _value(ask: Ask, kind: str, labels: StringMap, annotations: StringMap, namespace: Namespace | None) -> str | None:
    """What stands under the key of `ask`, in the labels or annotations of pod or namespace."""
    if ask.on == "pod":
        return (annotations if kind == "annotation" else labels).get(ask.key)
    if namespace is None:
        return None
    source = namespace.metadata.annotations if kind == "annotation" else namespace.metadata.labels
    return source.get(ask.key) if source else None


def _not_a_word(ask: Ask, value: str) -> Expectation:
    return Expectation(Expect.NO, f"{ask.where} is {value[:63]!r}, which is no request that can be counted on")


def _live_shape(default: DefaultWebhook, service: DefaultService) -> Webhook:
    return Webhook(
        name=default.name,
        client_config=WebhookClientConfig(
            service=ServiceReference(namespace=service.namespace, name=service.name, path=service.path)
        ),
        rules=pod_creation_rules(),
        failure_policy=default.failure_policy,
        namespace_selector=_selector(default.namespace_selector),
        object_selector=_selector(default.object_selector),
    )


def pod_creation_rules() -> list[RuleWithOperations]:
    """The rules that every injector's webhook has at least."""
    return [RuleWithOperations(operations=["CREATE"], api_groups=[""], api_versions=["v1"], resources=["pods"])]


def _selector(requirements: tuple[DefaultRequirement, ...]) -> LabelSelector | None:
    if not requirements:
        return None
    return LabelSelector(
        match_expressions=[
            SelectorRequirement(key=each.key, operator=each.operator, values=list(each.values)) for each in requirements
        ]
    )
