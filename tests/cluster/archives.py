"""Images without an engine: an archive as `docker save` makes it, out of a few files."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write_archive(target: Path, tag: str, files: Mapping[str, Path], *, command: list[str]) -> None:
    """Write an image of one layer with these files, each executable, by their place in it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for place, source in files.items():
            information = tar.gettarinfo(source, arcname=place.lstrip("/"))
            information.mode = 0o755
            with source.open("rb") as stream:
                tar.addfile(information, stream)
    content = layer.getvalue()
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "config.json", json.dumps(configuration).encode())
        _add(archive, "layer.tar", content)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    information = tarfile.TarInfo(name)
    information.size = len(content)
    archive.addfile(information, io.BytesIO(content))
