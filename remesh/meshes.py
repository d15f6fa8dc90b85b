"""Mesh profiles: how each sidecar injector is recognised, who asks it for a sidecar, and how its work shows.

The profiles are data: one TOML file per mesh, shipped in `config/meshes/`, overridden or added to by the operator's own
folder (same file name: replaces). They answer three questions without I/O:

- whose webhook is this?                         `Profiles.for_webhook`, `Profiles.named`
- does this pod ask its injector for a sidecar?  `MeshProfile.expects`
- has this pod been injected?                    `MeshProfile.injected`

A profile speaks for the injector's own logic only. Whether a webhook sees the pod at all is for its live selectors to
say (`remesh.admission`); both together are `remesh.decide.expected_sidecars`.
"""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from remesh.errors import ConfigError, UsageError
from remesh.objects import ServiceReference, Webhook
from remesh.profile import Expect, Expectation, MeshProfile, pod_creation_rules
from remesh.tomlfile import parse_toml

__all__ = ["Expect", "Expectation", "MeshProfile", "Profiles", "load_profiles", "pod_creation_rules"]


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
    texts = [files[key] for key in sorted(files)]
    profiles = [parse_toml(name, text, MeshProfile, "see docs/mesh-profiles.md") for name, text in texts]
    _require_distinct(profiles, [name for name, _ in texts])
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


def _require_distinct(profiles: list[MeshProfile], files: list[str]) -> None:
    seen: dict[str, str] = {}
    for profile, file in zip(profiles, files, strict=True):
        if profile.name in seen:
            raise ConfigError(f"{file}: name: {profile.name!r} is taken by {seen[profile.name]}; choose another name")
        seen[profile.name] = file
