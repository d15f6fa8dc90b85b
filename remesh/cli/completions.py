"""What the shell can complete beside the names of commands and options. Nothing heavy is imported, and nobody is asked.

Names in the cluster are not completed: that would take a request to the API server at each press of Tab.
"""

import os
from pathlib import Path


def meshes(incomplete: str) -> list[str]:
    """Names of the mesh profiles: those of their files, shipped and in REMESH_MESHES."""
    import config

    folders = [Path(place) / "meshes" for place in config.__path__]
    if own := os.environ.get("REMESH_MESHES"):
        folders.append(Path(own))
    found = {path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.toml")}
    return sorted(name for name in found if name.startswith(incomplete))


def targets(incomplete: str) -> list[str]:
    """`rs/`, `deploy/`: each kind by its short name, or by every name that begins so."""
    from remesh.cli.targets import kind_names

    known = kind_names()
    if not incomplete:
        return [f"{names[-1]}/" for names in known]
    return [f"{name}/" for names in known for name in names if name.startswith(incomplete)]


def records(incomplete: str) -> list[str]:
    """What `remesh audit` takes: a target, or one of its own words."""
    words = [word for word in ("export", "manifest", "prune", "verify") if word.startswith(incomplete)]
    return words + targets(incomplete)


def shipped(incomplete: str) -> list[str]:
    """Files and folders of `remesh files`, one level at a time, as a shell completes paths."""
    import config

    folder, _, start = incomplete.rpartition("/")
    left_out = ("__init__.py", "__pycache__")
    found: set[str] = set()
    for place in (Path(path) / folder for path in config.__path__):
        for item in place.iterdir() if place.is_dir() else ():
            if item.name.startswith(start) and item.name not in left_out:
                name = f"{folder}/{item.name}" if folder else item.name
                found.add(f"{name}/" if item.is_dir() else name)
    return sorted(found)
