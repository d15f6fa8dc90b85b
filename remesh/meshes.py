"""Mesh profiles: how each sidecar injector is recognised, who asks it for a sidecar, and how its work shows.

The profiles are data: one TOML file per mesh, shipped in `config/meshes/`, overridden or added to by the operator's own
folder (same file name: replaces). This module validates them with pydantic and answers three questions without I/O:

- whose webhook is this?                         `Profiles.for_webhook`, `Profiles.named`
- does this pod ask its injector for a sidecar?  `MeshProfile.expects`
- has this pod been injected?                    `MeshProfile.injected`

A profile speaks for the injector's own logic only. Whether a webhook sees the pod at all is for its live selectors to
say (`remesh.admission`); both together are `remesh.decide.expected_sidecars`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import translate
from functools import cached_property
from importlib import resources
from pathlib import Path
from re import Pattern
from re import compile as compile_pattern
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from remesh.errors import ConfigError, UsageError
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
from remesh.policy import first_problem

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
            value = _value(ask, labels, annotations, namespace)
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
        return decided or self._answers["default"]

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
            Expectation(Expect.YES, f"{self.title} injects every pod that its webhook sees")
            if self.asks.default == "yes"
            else Expectation(Expect.NO, f"neither pod nor namespace asks {self.title} for a sidecar")
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


def _value(ask: Ask, labels: StringMap, annotations: StringMap, namespace: Namespace | None) -> str | None:
    if ask.on == "pod":
        return (annotations if ask.kind == "annotation" else labels).get(ask.key)
    if namespace is None:
        return None
    source = namespace.metadata.annotations if ask.kind == "annotation" else namespace.metadata.labels
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


class Profiles:
    """All mesh profiles. Immutable."""

    def __init__(self, profiles: Iterable[MeshProfile]) -> None:
        self.all: tuple[MeshProfile, ...] = tuple(profiles)
        self._by_name = {profile.name: profile for profile in self.all}

    def by_name(self, name: str) -> MeshProfile:
        """The profile of a mesh. Raises UsageError naming the known ones if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(sorted(self._by_name))
            raise UsageError(f"unknown mesh {name!r}; known are {known} (add a profile with --meshes)") from None

    def for_webhook(self, configuration: str, webhook: Webhook) -> MeshProfile | None:
        """The mesh whose injector this live webhook is, or None: not an injector that remesh knows."""
        return self.named(webhook.name, webhook.client_config.service, configuration)

    def named(self, name: str, service: ServiceReference | None, configuration: str = "") -> MeshProfile | None:
        """The same, from what a failure text says of a webhook."""
        return next((profile for profile in self.all if profile.serves(configuration, name, service)), None)


def load_profiles(extra: Path | None = None) -> Profiles:
    """The shipped profiles, with those of the folder `extra` added or, by file name, put in their place.

    Raises ConfigError naming file, line and key where a file is no TOML or breaks the model.
    """
    files = {item.name: (f"config/meshes/{item.name}", item.read_text(encoding="utf-8")) for item in _shipped()}
    if extra is not None:
        files |= {path.name: (str(path), _read(path)) for path in _own(extra)}
    profiles = [_parse(name, text) for name, text in (files[key] for key in sorted(files))]
    _require_distinct(profiles, [files[key][0] for key in sorted(files)])
    return Profiles(profiles)


def _shipped() -> list[Path]:
    folder = resources.files("config") / "meshes"
    return [Path(str(item)) for item in folder.iterdir() if item.name.endswith(".toml")]


def _own(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise ConfigError(f"mesh profiles {folder}: {error.strerror}; give an existing folder with --meshes") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"mesh profile {path}: {reason}; correct or remove the file") from error


def _parse(name: str, text: str) -> MeshProfile:
    try:
        return MeshProfile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not valid TOML: {error}; correct the file") from error
    except ValidationError as error:
        raise ConfigError(first_problem(name, text, error)) from error


def _require_distinct(profiles: list[MeshProfile], files: list[str]) -> None:
    seen: dict[str, str] = {}
    for profile, file in zip(profiles, files, strict=True):
        if profile.name in seen:
            raise ConfigError(f"{file}: name: {profile.name!r} is taken by {seen[profile.name]}; choose another name")
        seen[profile.name] = file
