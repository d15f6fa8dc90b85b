"""Which sidecars a pod should come with: live webhooks and mesh profiles taken together. Pure.

Asked for every pod and every template, so what does not depend on the pod is compiled once for each set of webhooks
and kept (`injectors_of`). Called by `remesh.decide`; `expected_sidecars` is for everybody. A failure text
names a webhook; whose it is, is asked here too (`named_injector`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from remesh.admission import CompiledWebhook, Labels, compile_webhook, namespace_labels
from remesh.classify import service_named, webhook_named
from remesh.meshes import Expect, Expectation, MeshProfile, Profiles
from remesh.models import InjectorRef, Observed
from remesh.objects import Namespace, Pod, PodSpec, PodTemplate, ServiceReference, Webhook

Webhooks = list[tuple[str, Webhook]]


class Claim(NamedTuple):
    """What one mesh has to do with one pod."""

    profile: MeshProfile
    injector: InjectorRef
    answer: Expect
    reason: str
    certain: bool = True  # False: it has match conditions, or a selector that cannot be judged here
    said: bool = True  # False: neither pod nor namespace says anything of this mesh


class _Seen(NamedTuple):
    injector: InjectorRef
    compiled: CompiledWebhook


class Injectors:
    """The injectors of one cluster, or those of the charts where the live ones are not known."""

    __slots__ = ("_by_profile", "_kept", "webhooks")

    def __init__(self, webhooks: Webhooks | None, complete: bool, profiles: Profiles) -> None:
        self._kept = (webhooks, profiles)  # so that the identities that it is filed under stay taken
        self.webhooks: list[tuple[MeshProfile, InjectorRef, Webhook]] = [
            (profile, injector_ref(profile, configuration, webhook), webhook)
            for configuration, webhook in webhooks or ()
            if (profile := profiles.for_webhook(configuration, webhook)) is not None
        ]
        all_known = webhooks is not None and complete
        seen = ((profile, tuple(self._live(profile, complete))) for profile in profiles.all)
        self._by_profile = tuple(
            (profile, live or _by_default(profile)) for profile, live in seen if live or not all_known
        )

    def claims(
        self, labels: Labels | None, annotations: Labels | None, namespace: Namespace | None, spec: PodSpec | None
    ) -> list[Claim]:
        """What every mesh has to do with such a pod; meshes without a live webhook are left out."""
        of_namespace, labels = namespace_labels(namespace), labels or {}
        return [
            self._claim(profile, seen, profile.expects(labels, annotations, namespace, spec), of_namespace, labels)
            for profile, seen in self._by_profile
        ]

    def _live(self, profile: MeshProfile, complete: bool) -> Iterator[_Seen]:
        for owner, injector, webhook in self.webhooks:
            if owner is not profile:
                continue
            if complete or webhook.namespace_selector or webhook.object_selector or webhook.match_conditions:
                yield _Seen(injector, compile_webhook(webhook))
            else:  # told by name only: its chart's selectors apply
                yield from (_Seen(injector, compile_webhook(each)) for each in profile.default_webhooks)

    @staticmethod
    def _claim(
        profile: MeshProfile, seen: tuple[_Seen, ...], wish: Expectation, namespace: Labels | None, labels: Labels
    ) -> Claim:
        """An opt-out counts whether or not a webhook would see it; a wish only if one does."""
        said = not wish.by_default
        if wish.answer is not Expect.YES:
            return Claim(profile, seen[0].injector, wish.answer, wish.reason, said=said)
        doubtful: Claim | None = None
        why = ""
        for each in seen:
            match = each.compiled.match(namespace, labels)
            if match.matches:
                return Claim(profile, each.injector, Expect.YES, wish.reason, said=said)
            why = match.reason
            if match.matches is None and doubtful is None:
                doubtful = Claim(profile, each.injector, Expect.YES, f"{wish.reason}; but {why}", False, said)
        unseen = f"{profile.title}'s webhook does not see it: {why}"
        return doubtful or Claim(profile, seen[0].injector, Expect.NO, unseen, said=said)


_LIMIT: Final = 32  # sets of webhooks kept; one per cluster is in use at a time
_compiled: dict[tuple[int, ...], Injectors] = {}


def injectors_of(webhooks: Webhooks | None, complete: bool, profiles: Profiles) -> Injectors:
    """Compiled injectors of these very webhooks; made once for as long as the same objects are passed."""
    key = (id(profiles), complete, *(id(webhook) for _, webhook in webhooks or ()), 0 if webhooks is None else 1)
    found = _compiled.get(key)
    if found is None:
        if len(_compiled) >= _LIMIT:
            _compiled.clear()
        kept = list(webhooks) if webhooks is not None else None
        found = _compiled[key] = Injectors(kept, complete, profiles)
    return found


def surroundings(observed: Observed, profiles: Profiles) -> Injectors:
    """The injectors around one observed object."""
    return injectors_of(observed.webhooks, observed.webhooks_complete, profiles)


def injector_ref(profile: MeshProfile, configuration: str, webhook: Webhook) -> InjectorRef:
    """The injector that a webhook of this mesh calls."""
    service = webhook.client_config.service
    return InjectorRef(
        mesh=profile.name,
        configuration=configuration,
        webhook=webhook.name,
        service_namespace=service.namespace if service else "",
        service_name=service.name if service else "",
    )


def _by_default(profile: MeshProfile) -> tuple[_Seen, ...]:
    defaults = profile.default_webhooks
    return tuple(_Seen(injector_ref(profile, "", each), compile_webhook(each)) for each in defaults)


def expected_sidecars(
    subject: Pod | PodTemplate,
    namespace: Namespace | None,
    webhooks: Webhooks | None,
    profiles: Profiles,
    *,
    complete: bool = True,
) -> list[tuple[MeshProfile, InjectorRef]]:
    """The meshes whose sidecar this pod, or the pods of this template, should come with, and who injects it.

    `webhooks` None: not known, so the charts' own selectors apply. `complete` False: the same for all meshes that
    `webhooks` does not name. A webhook with match conditions counts as one that sees the pod: a dry run tells.
    """
    injectors = injectors_of(webhooks, complete, profiles)
    return [(claim.profile, claim.injector) for claim in asked_for(claims_of(subject, namespace, injectors))]


def claims_of(subject: Pod | PodTemplate, namespace: Namespace | None, injectors: Injectors) -> list[Claim]:
    """What every mesh has to do with a pod or with a template's pods."""
    meta = subject.metadata
    return injectors.claims(meta.labels, meta.annotations, namespace, subject.spec)


def asked_for(claims: Iterable[Claim]) -> list[Claim]:
    """Those of the claims in which a sidecar is expected."""
    return [claim for claim in claims if claim.answer is Expect.YES]


@dataclass(slots=True)
class NamedInjector:
    """The injector that a failure text is about."""

    profile: MeshProfile
    ref: InjectorRef


def named_injector(text: str, observed: Observed, profiles: Profiles) -> NamedInjector | None:
    """The injector whose webhook the text names, by the live configuration; offline by name and called Service.

    None if the text names none, or a webhook that is no injector.
    """
    name = webhook_named(text)
    if name is None:
        return None
    called = service_named(text)
    live = [each for each in surroundings(observed, profiles).webhooks if each[2].name == name]
    if called is not None and len(live) > 1:  # revisions share their webhooks' names
        service = (called.namespace, called.name)
        live = [each for each in live if (each[1].service_namespace, each[1].service_name) == service] or live
    if live:
        return NamedInjector(live[0][0], live[0][1])
    if observed.webhooks is not None and observed.webhooks_complete:
        return None
    profile = profile_named(text, profiles)
    if profile is None:
        return None
    webhook = profile.default_webhooks[0]
    ref = injector_ref(profile, "", webhook).model_copy(update={"webhook": name})
    if called is not None:
        ref = ref.model_copy(update={"service_namespace": called.namespace, "service_name": called.name})
    return NamedInjector(profile, ref)


def profile_named(text: str, profiles: Profiles) -> MeshProfile | None:
    """The mesh whose injector the text is about, by the webhook's name and the Service that was called alone."""
    name, called = webhook_named(text), service_named(text)
    if name is None:
        return None
    return profiles.named(name, ServiceReference(called.namespace, called.name, called.path) if called else None)
