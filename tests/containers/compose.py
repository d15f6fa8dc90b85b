"""compose.yaml, brought up by the real docker compose on the tests' own engine."""

import json
from pathlib import Path
from typing import Any

from tests.containers.engine import Engine
from tests.containers.images import ROOT

UP_SECONDS = 150


class Compose:
    """One project of compose.yaml on one engine; nothing in the file is changed, its variables are set."""

    def __init__(self, engine: Engine, program: Path, name: str, variables: dict[str, str]) -> None:
        self._engine = engine
        self._command = [str(program), "--project-name", name, "--file", str(ROOT / "compose.yaml")]
        self._variables = variables

    def up(self) -> None:
        """Start every service and return when each is healthy. Raises `DockerError` when one is not in time."""
        self("up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS), "--no-build", "--pull", "never")

    def down(self) -> None:
        """End and remove everything of the project, its volume too."""
        self("down", "--volumes", "--timeout", "5")

    def containers(self) -> dict[str, dict[str, Any]]:
        """What `docker inspect` says of each service's container, by service."""
        ids = self("ps", "--all", "--quiet").split()
        found: list[dict[str, Any]] = json.loads(self._engine.docker("inspect", *ids)) if ids else []
        return {one["Config"]["Labels"]["com.docker.compose.service"]: one for one in found}

    def execute(self, service: str, *command: str) -> str:
        """Run a command in a running service and return its standard output. Raises `DockerError`."""
        return self("exec", "--no-TTY", service, *command)

    def logs(self) -> str:
        """What every service has said."""
        return self("logs", "--no-color")

    def __call__(self, *arguments: str) -> str:
        return self._engine.run(
            [*self._command, *arguments], seconds=UP_SECONDS + 60, environment=self._variables, cwd=ROOT
        )
