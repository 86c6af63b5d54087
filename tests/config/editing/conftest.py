"""A config.json, its editor, and a watch that applies what is saved."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.config.channels import check_channels
from gateway.config.editing.editor import ConfigEditor
from gateway.config.environment import Environment
from gateway.config.load import Lookup, parse, secrets_unavailable
from gateway.config.model import Config
from gateway.config.watch import ConfigWatch

KEY = "sk-0123456789abcdefghij"
WRITTEN = """{
    "$schema": "schema.json",
    "owner": {"name": "Zoë", "telegram": 5},
    "models": {"providers": {"openai": {"api_key": "sk-0123456789abcdefghij"}}},
    "channels": {"telegram": {"token": "$env:BOT", "allow": [7]}}
}
"""


@dataclass
class Desk:
    """What a person has in front of them."""

    path: Path
    environ: dict[str, str]
    watch: ConfigWatch
    editor: ConfigEditor
    secrets: Lookup = secrets_unavailable

    @property
    def written(self) -> dict[str, JsonValue]:
        return json.loads(self.path.read_text(encoding="utf-8"))

    @property
    def stamp(self) -> str:
        return self.editor.form().stamp

    async def save(self, **typed: str) -> dict[str, str]:
        """Type into fields, whose keys have `__` for a dot."""
        values = {key.replace("__", "."): text for key, text in typed.items()}
        return dict(await self.editor.save(self.editor.typed(self.stamp, values)))


def desk_in(folder: Path, environ: dict[str, str]) -> Desk:
    path = folder / "config.json"
    environ = {
        "SUPACLAW_CONFIG": str(path),
        "SUPACLAW_DATA": str(folder / "data"),
        "BOT": "123456:" + "a" * 35,
        **environ,
    }

    def secret(name: str) -> str:
        return desk.secrets(name)

    def checked(text: str) -> Config:
        config = parse(text, environ, secret)
        check_channels(config)
        return config

    async def rejected(problem: str) -> None:
        raise AssertionError(problem)

    watch = ConfigWatch(path, checked(path.read_text(encoding="utf-8")), checked, rejected, 0.1, _keys=dict)
    desk = Desk(path, environ, watch, ConfigEditor(Environment.read(environ), environ, watch))
    return desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    (tmp_path / "config.json").write_text(WRITTEN, encoding="utf-8")
    (tmp_path / "data").mkdir()
    desk = desk_in(tmp_path, {"SUPACLAW_MODEL": "openai/gpt-5"})
    watching = asyncio.create_task(desk.watch.run())
    yield desk
    watching.cancel()
    await asyncio.wait([watching])
