from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.config.data.keys import read_keys
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.flow.setup import Setup
from tests.fakes.openai_server import FakeModels


@dataclass
class Home:
    """A folder of a gateway, and what was hidden from its logs."""

    folder: Path
    environ: dict[str, str]
    hidden: list[str] = field(default_factory=list)

    @property
    def setup(self) -> Setup:
        environment = Environment.read(self.environ)
        return Setup(
            environment,
            self.environ,
            SystemClock(),
            lambda: load(environment.config, self.environ),
            self.hidden.append,
        )

    @property
    def config(self) -> str:
        return (self.folder / "config.json").read_text()

    @property
    def keys(self) -> dict[str, str]:
        return read_keys(self.folder / "data")


@pytest.fixture
def home(tmp_path: Path) -> Callable[[str], Home]:
    def made(config: str) -> Home:
        (tmp_path / "config.json").write_text(config)
        environ = {
            "SUPACLAW_DATA": str(tmp_path / "data"),
            "SUPACLAW_CONFIG": str(tmp_path / "config.json"),
            "OLLAMA_HOST": "127.0.0.1:1",
        }
        return Home(tmp_path, environ)

    return made


@pytest.fixture
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as models:
        yield models
