import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.app.storage.backup import back_up
from gateway.app.storage.database import reach
from gateway.app.storage.manifest import Manifest
from gateway.config.environment import Environment
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.store.connection.pool import Database
from tests.store.world import World, found


@dataclass(frozen=True)
class House:
    """Where a gateway lives: its folders, its configuration, its database."""

    home: Path
    dsn: str

    @property
    def environment(self) -> Environment:
        data = self.home / "data"
        return Environment(config=self.home / "config.json", data=data, workspace=data / "workspace")

    @property
    def config(self) -> Config:
        return parse(json.dumps({"database": {"url": self.dsn}}), {})

    def put(self, name: str, content: str | bytes = "x") -> Path:
        path = self.home / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def configure(self, **sections: object) -> None:
        self.environment.config.write_text(json.dumps(sections), encoding="utf-8")

    async def back_up(self, path: Path, **more: bool) -> Manifest:
        options = {"force": False, "with_secrets": False} | more
        reached = reach(self.environment, self.config, mine=False)
        return await back_up(self.environment, self.config, path, reached, **options)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that others on this machine have written is on its way, too."""
    monkeypatch.setattr("gateway.app.storage.restore.os.sync", lambda: None)


@pytest.fixture
def house(tmp_path: Path, dsn: str) -> House:
    """A gateway's home with the owner's workspace; its database is `dsn`."""
    house = House(tmp_path / "old", dsn)
    house.put("workspace/AGENTS.md", "Be kind.\n")
    return house


@pytest.fixture
def other(tmp_path: Path, empty_dsn: str) -> House:
    """An empty place with an empty database."""
    home = tmp_path / "new"
    home.mkdir()
    return House(home, empty_dsn)


@pytest.fixture
async def world(database: Database) -> World:
    """The owner, at one address, in one session, in the database of `house`."""
    return await found(database)


@pytest.fixture
async def target(other: House) -> AsyncIterator[Database]:
    """The database of `other`."""
    async with await Database.connect(other.dsn) as database:
        yield database
