"""The services of docker-compose.yml, as far as the kernel alone can keep to it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from docker.check.build import Settings
from docker.check.lint import ROOT


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    subpath: str = ""


class _Volume(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["volume"] = "volume"
    source: str
    target: str
    read_only: bool = False
    volume: _Part = _Part()

    @classmethod
    def of(cls, value: object) -> "_Volume":
        """In either of the two ways to write one; a default's colon is no separator."""
        if not isinstance(value, str):
            return cls.model_validate(value)
        source, target, *mode = value.replace("${CONFIG_FOLDER:-.}", "config").split(":")
        return cls(source=source, target=target, read_only=mode == ["ro"])


class _Described(BaseModel):
    entrypoint: list[str] | None = None
    command: list[str] | None = None
    network_mode: str = ""
    volumes: list[object]
    environment: dict[str, str] = {}
    read_only: bool
    cap_drop: list[str]
    security_opt: list[str]
    tmpfs: list[str] = []


@dataclass(frozen=True, slots=True)
class Mount:
    """Something of the machine's in a container."""

    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Service:
    """What a container is started with."""

    command: tuple[str, ...]
    mounts: tuple[Mount, ...]
    environ: dict[str, str]
    networked: bool
    writes_temporary: bool


def service(name: str, settings: Settings, volumes: Path) -> Service:
    """One with its volumes below a folder; raises for one that has rights."""
    found = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"][name]
    one = _Described.model_validate(json.loads(json.dumps(found)))
    assert one.read_only
    assert one.cap_drop == ["ALL"]
    assert one.security_opt == ["no-new-privileges:true"]
    entrypoint = settings.entrypoint if one.entrypoint is None else one.entrypoint
    command = settings.command if one.command is None and one.entrypoint is None else one.command or []
    mounts = [_Volume.of(each) for each in one.volumes]
    return Service(
        (*entrypoint, *command),
        tuple(Mount(volumes / each.source / each.volume.subpath, each.target, each.read_only) for each in mounts),
        {key: value for key, value in one.environment.items() if "${" not in value},
        one.network_mode != "none",
        bool(one.tmpfs),
    )
