"""Checks of each injector: its Service, its pods, its webhooks and its certificate. Used by `remesh.cli.checks`.

Webhooks that lead to one Service (or one URL) are one injector. Everything is read from the API server; only the served
certificate needs a connection of its own, which is made where it can be expected to arrive.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from remesh.admission import would_call
from remesh.cli.check_pods import pod_checks
from remesh.cli.check_tls import Served, Target, bundle_check, examine, served_check
from remesh.cli.checks import Check, fail, guarded, ok, skip, warn
from remesh.cli.session import Session, utc_now
from remesh.cli.text import count
from remesh.cli.trials import Trial, Trials
from remesh.errors import NotFound
from remesh.kube.config import IN_CLUSTER
from remesh.kube.resources import resource_of
from remesh.meshes import Expect, MeshProfile
from remesh.models import FailureClass, Probe
from remesh.objects import Namespace, ServiceReference, Webhook

DRY_RUN_SAFE: Final = ("None", "NoneOnDryRun")  # sideEffects with which the API server allows a dry run
LONGEST_TIMEOUT_SECONDS: Final = 10  # the default of admissionregistration.k8s.io/v1
MOST_ENDPOINTS: Final = 10  # asked for their certificate
KUBE_SYSTEM: Final = "kube-system"
Hook = tuple[str, Webhook]  # the configuration's name, and the webhook


@dataclass(frozen=True)
class Injector:
    """Webhooks of one mesh that lead to one place."""

    profile: MeshProfile
    service: ServiceReference | None
    url: str
    hooks: list[Hook] = field(default_factory=list)

    @property
    def subject(self) -> str:
        """`linkerd (linkerd/linkerd-proxy-injector)`."""
        place = f"{self.service.namespace}/{self.service.name}" if self.service else _place(self.url)
        return f"{self.profile.name} ({place})"

    @property
    def namespace(self) -> str:
        """Where it runs."""
        return self.service.namespace if self.service else self.profile.service.namespace

    @cached_property
    def webhooks(self) -> list[Webhook]:
        """Its webhooks without their configurations' names."""
        return [webhook for _, webhook in self.hooks]

    def every(self, value: Callable[[Webhook], Any]) -> dict[Any, list[str]]:
        """Names of the webhooks by a value of theirs."""
        found: dict[Any, list[str]] = {}
        for configuration, webhook in self.hooks:
            found.setdefault(value(webhook), []).append(f"{configuration}/{webhook.name}")
        return found


def injectors(session: Session, *, direct: bool) -> Iterator[Check]:
    """What concerns all injectors together, then every check of every one."""
    webhooks = session.cluster.webhooks()
    found = find(session, webhooks)
    known = sum(len(each.hooks) for each in found)
    if not found:
        yield warn("injectors-found", f"no injector among {count(len(webhooks), 'mutating webhook')}")
        return
    others = f"; {count(len(webhooks) - known, 'other mutating webhook')}" if len(webhooks) > known else ""
    yield ok("injectors-found", f"{count(len(found), 'injector')} with {count(known, 'webhook')}{others}")
    namespaces = session.cluster.list("Namespace")
    yield overlaps(found, namespaces)
    for injector in found:
        yield from OneInjector(session, injector, namespaces, direct=direct).checks()


def find(session: Session, webhooks: Iterable[Hook]) -> list[Injector]:
    """The injectors among all webhooks, in the order of their call."""
    found: dict[tuple[str, str], Injector] = {}
    for configuration, webhook in webhooks:
        profile = session.profiles.for_webhook(configuration, webhook)
        if profile is not None:
            service, url = webhook.client_config.service, webhook.client_config.url or ""
            place = f"{service.namespace}/{service.name}" if service else _place(url)
            injector = found.setdefault((profile.name, place), Injector(profile, service, url))
            injector.hooks.append((configuration, webhook))
    return list(found.values())


class OneInjector:
    """The checks of one injector."""

    def __init__(self, session: Session, injector: Injector, namespaces: list[Namespace], *, direct: bool) -> None:
        self._session = session
        self._injector = injector
        self._subject = injector.subject
        self._namespaces = namespaces
        self._direct = direct

    def checks(self) -> Iterator[Check]:
        """All of them."""
        service = self._injector.service
        if service is None:
            yield ok("injector-service", f"reached by URL: {_place(self._injector.url)}", self._subject)
        else:
            yield from guarded("injector-service", lambda: self._service(service), self._subject)
            yield from guarded("injector-endpoints", lambda: self._pods(service), self._subject)
        yield from self._webhooks()
        yield from self._bundles()
        trial, check = self._dry_run()
        yield from guarded("served-certificate", lambda: self._certificate(trial), self._subject)
        yield check

    # Its Service and pods

    def _service(self, service: ServiceReference) -> Iterator[Check]:
        name = f"Service {service.namespace}/{service.name}"
        try:
            found = self._session.cluster.get_raw("Service", service.namespace, service.name)
        except NotFound:
            yield fail("injector-service", f"{name} that its webhook names is not there", self._subject)
            return
        for port in sorted(
            {each.client_config.service.port for each in self._injector.webhooks if each.client_config.service}
        ):
            ports = found.get("spec", {}).get("ports") or ()
            there = next((each for each in ports if each.get("port") == port), None)
            if there is None:
                known = ", ".join(str(each.get("port")) for each in ports) or "none"
                text = f"{name} has no port {port} that its webhook names; it has {known}"
                yield fail("injector-service", text, self._subject)
            else:
                yield ok("injector-service", f"{name}, port {port} to {there.get('targetPort', port)}", self._subject)

    def _pods(self, service: ServiceReference) -> Iterator[Check]:
        yield from pod_checks(self._session, service, self._slices(service), self._subject)

    def _slices(self, service: ServiceReference) -> list[dict[str, Any]]:
        path = resource_of("EndpointSlice").path(service.namespace)
        selector = {"labelSelector": f"kubernetes.io/service-name={service.name}"}
        return list(self._session.cluster.client.get(path, selector).get("items") or ())

    # Its webhooks

    def _webhooks(self) -> Iterator[Check]:
        yield self._failure_policy()
        yield self._timeout()
        yield self._side_effects()
        yield self._kube_system()
        yield self._own_namespace()

    def _failure_policy(self) -> Check:
        found = self._injector.every(lambda webhook: webhook.failure_policy)
        if set(found) == {"Fail"}:
            text = "failurePolicy Fail: while it is away, pods are refused, and remesh nudges their owners later"
            return ok("failure-policy", text, self._subject)
        text = f"failurePolicy Ignore of {_listed(found, 'Ignore')}: while it is away, pods come up bare"
        return warn("failure-policy", text, self._subject)

    def _timeout(self) -> Check:
        found = self._injector.every(lambda webhook: webhook.timeout_seconds)
        longest = max(found)
        if longest > LONGEST_TIMEOUT_SECONDS:
            text = f"timeoutSeconds {longest} of {_listed(found, longest)}"
            return warn("webhook-timeout", text, self._subject)
        return ok("webhook-timeout", f"timeoutSeconds {longest}", self._subject)

    def _side_effects(self) -> Check:
        found = self._injector.every(lambda webhook: webhook.side_effects)
        for value in found:
            if value not in DRY_RUN_SAFE:
                text = f"sideEffects {value} of {_listed(found, value)}: the API server refuses dry runs"
                return warn("side-effects", text, self._subject)
        return ok("side-effects", f"sideEffects {', '.join(sorted(found))}: dry runs are allowed", self._subject)

    def _kube_system(self) -> Check:
        seen = self._seen(KUBE_SYSTEM, {})
        if not seen:
            return ok("kube-system", "pods of kube-system are not seen by its webhooks", self._subject)
        return self._seen_check("kube-system", "pods of kube-system", seen)

    def _own_namespace(self) -> Check:
        seen = self._seen(self._injector.namespace, self._injector.profile.injector.labels)
        if not seen:
            return ok("own-namespace", "its own pods are not seen by its webhooks", self._subject)
        return self._seen_check("own-namespace", f"its own pods in {self._injector.namespace}", seen)

    def _seen(self, namespace: str, labels: dict[str, str]) -> list[tuple[str, Webhook, bool]]:
        """Webhooks that see such pods, and whether that is certain."""
        found = next((each for each in self._namespaces if each.metadata.name == namespace), None)
        if found is None:
            return []
        answers = (
            (f"{name}/{hook.name}", hook, would_call(hook, found, labels)) for name, hook in self._injector.hooks
        )
        return [(name, hook, answer.matches is True) for name, hook, answer in answers if answer.matches is not False]

    def _seen_check(self, check: str, what: str, seen: list[tuple[str, Webhook, bool]]) -> Check:
        """Behind failurePolicy Fail such pods cannot come back while the injector needs them, or is them."""
        deadly = [name for name, hook, certain in seen if certain and hook.failure_policy == "Fail"]
        if deadly:
            return fail(check, f"{what} are seen by {', '.join(deadly)} with failurePolicy Fail", self._subject)
        names = ", ".join(name for name, _, _ in seen)
        verb = "are" if any(certain for _, _, certain in seen) else "may be"
        return warn(check, f"{what} {verb} seen by {names}", self._subject)

    # Its certificate

    def _bundles(self) -> Iterator[Check]:
        for bundle, names in self._injector.every(lambda webhook: webhook.client_config.ca_bundle or "").items():
            check = bundle_check(bundle, by_url=not self._injector.service, now=utc_now(), subject=self._subject)
            if len(names) < len(self._injector.hooks):
                check = Check(check.id, check.state, f"{check.text} (of {', '.join(names)})", check.subject)
            yield check

    def _certificate(self, trial: Trial | None) -> Iterator[Check]:
        targets, why = self._targets()
        if targets:
            yield served_check(self._examined(targets), utc_now(), self._subject)
        else:
            yield self._by_dry_run(trial, why)

    def _examined(self, targets: list[Target]) -> list[Served]:
        bundles = list(self._injector.every(lambda webhook: webhook.client_config.ca_bundle))
        return [examine(target, bundle) for target in targets for bundle in bundles]

    def _targets(self) -> tuple[list[Target], str]:
        """Where to connect, or why not."""
        service = self._injector.service
        if service is None:
            return self._by_url(urlsplit(self._injector.url))
        if not self._direct and self._session.access.context != IN_CLUSTER:
            return [], "run it inside the cluster, or with --direct where pods' addresses can be reached"
        name = f"{service.name}.{service.namespace}.svc"
        found = [
            Target(address, port, name) for address, port in endpoints(self._slices(service), service, self._port_name)
        ]
        return found[:MOST_ENDPOINTS], "" if found else "there is no ready endpoint"

    def _by_url(self, url: Any) -> tuple[list[Target], str]:
        host = url.hostname or ""
        server = urlsplit(self._session.access.server).hostname or ""
        if _is_loopback(host) and not _is_loopback(server):
            return [], f"{host} is the API server's own machine"
        return [Target(host, url.port or 443, host)], ""

    def _port_name(self, service: ServiceReference) -> str:
        found = self._session.cluster.get_raw("Service", service.namespace, service.name)
        ports = found.get("spec", {}).get("ports") or ()
        return next((str(each.get("name") or "") for each in ports if each.get("port") == service.port), "")

    def _by_dry_run(self, trial: Trial | None, why: str) -> Check:
        """From outside, what the API server said of the certificate is all there is."""
        check, outside = "served-certificate", f"not checked from here ({why})"
        if trial is not None and trial.result.probe is Probe.PASSES:
            text = f"served certificate: the API server trusts it, by the dry run; issuer, names and expiry {outside}"
            return ok(check, text, self._subject)
        if trial is not None and trial.result.failure_class is FailureClass.WEBHOOK_X509:
            _, found, why = trial.result.message.rpartition("x509: ")  # Go's own words for what is wrong with it
            return fail(check, f"the API server refuses the served certificate: {found}{why}", self._subject)
        return skip(check, f"served certificate {outside}", self._subject)

    # Does it inject?

    def _dry_run(self) -> tuple[Trial | None, Check]:
        """One live dry run: ready endpoints prove nothing."""
        if any(webhook.side_effects not in DRY_RUN_SAFE for webhook in self._injector.webhooks):
            return None, skip("dry-run", "dry run: not asked, its webhook declares side effects", self._subject)
        profile = self._injector.profile
        trial = Trials(self._session, self._namespaces).ask(profile, self._injector.webhooks)
        if trial is None:
            text = f"dry run: not asked, no namespace asks for {profile.title} yet"
            return None, skip("dry-run", text, self._subject)
        return trial, self._trial_check(trial)

    def _trial_check(self, trial: Trial) -> Check:
        text = f"dry run in namespace {trial.namespace}: {trial.result.reason}"
        text += f" ({trial.result.message})" if trial.result.message else ""
        if trial.result.probe is Probe.PASSES:
            return ok("dry-run", text, self._subject)
        if trial.conclusive:
            return fail("dry-run", text, self._subject)
        return warn("dry-run", text, self._subject, "this says nothing about the injector")


def endpoints(
    slices: list[dict[str, Any]], service: ServiceReference, port_name: Callable[[ServiceReference], str]
) -> list[tuple[str, int]]:
    """Addresses and ports of the ready endpoints."""
    name = port_name(service) if slices else ""
    found = []
    for piece in slices:
        port = next((each.get("port") for each in piece.get("ports") or () if (each.get("name") or "") == name), None)
        for endpoint in piece.get("endpoints") or ():
            if port and endpoint.get("conditions", {}).get("ready") is not False:
                found += [(address, int(port)) for address in (endpoint.get("addresses") or ())[:1]]
    return sorted(set(found))


def overlaps(found: list[Injector], namespaces: list[Namespace]) -> Check:
    """No pod is given a sidecar by two webhooks: the second call would inject again, or meet another mesh's proxy."""
    hooks = [(f"{name}/{hook.name}", hook, each.profile) for each in found for name, hook in each.hooks]
    for namespace in namespaces:
        seeing = [name for name, hook, profile in hooks if _injects(hook, profile, namespace)]
        if len(seeing) > 1:
            text = f"a pod in namespace {namespace.metadata.name} is seen by {' and '.join(seeing)}, and each injects"
            return warn("overlapping-webhooks", text)
    return ok("overlapping-webhooks", "no pod is injected by two webhooks")


def _injects(webhook: Webhook, profile: MeshProfile, namespace: Namespace) -> bool:
    if would_call(webhook, namespace, {}).matches is not True:
        return False
    return profile.expects({}, {}, namespace, None).answer is Expect.YES


def _listed(found: dict[Any, list[str]], value: Any) -> str:
    names = found[value]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname or '?'}" + (f":{parts.port}" if parts.port else "")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
