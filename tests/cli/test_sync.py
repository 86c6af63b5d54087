import asyncio
import json
from pathlib import Path
from typing import get_args

import pytest

from gateway.cli.storage.sync import _WORDS
from gateway.domain.principals import Role
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.workspace.sync.plan import Action
from tests.cli.conftest import Supaclaw
from tests.fakes.s3 import new_bucket
from tests.fakes.s3_fixtures import s3

__all__ = ["s3"]


@pytest.fixture
def shared(dsn: str, place: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the owner's, beside a gateway whose workspace is on a store."""
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)

    async def prepared() -> str:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            await principals.add(conn, Role.OWNER, "Ada", [])
        return await new_bucket(s3)

    keys = {"url": f"s3://{asyncio.run(prepared())}", "endpoint": s3, "access_key": "a", "secret_key": "b"}
    config = {"workspace": keys, "net": {"private_allow": ["127.0.0.1"]}}
    (place / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("SUPACLAW_CONFIG", str(place / "config.json"))
    (place / "one").mkdir()
    (place / "one" / "a.md").write_text("hello")
    return place


def test_two_folders_become_the_same(supaclaw: Supaclaw, shared: Path) -> None:
    (shared / "two").mkdir()
    (shared / "two" / "b.md").write_text("there")
    dry = supaclaw("files", "sync", "one", "--dry-run", "--json")
    assert dry.json == [{"what": "upload", "path": "a.md"}]
    assert supaclaw("files", "sync", "one", "--json").json == [{"what": "upload", "path": "a.md"}]
    assert supaclaw("files", "sync", "one").out == "Both sides are the same.\n"
    done = supaclaw("files", "sync", "two", "--json").json
    assert done == [{"what": "download", "path": "a.md"}, {"what": "upload", "path": "b.md"}]
    assert (shared / "two" / "a.md").read_text() == "hello"


def test_a_conflict_is_shown_before_and_after(supaclaw: Supaclaw, shared: Path) -> None:
    (shared / "two").mkdir()
    (shared / "two" / "a.md").write_text("mine")
    supaclaw("files", "sync", "one")
    dry = [each["what"] for each in supaclaw("files", "sync", "two", "--dry-run", "--json").json]  # type: ignore[attr-defined]
    assert dry == ["download", "keep beside"]
    assert (shared / "two" / "a.md").read_text() == "mine"
    done = supaclaw("files", "sync", "two").out
    assert "keep beside" in done
    assert sorted(path.read_text() for path in (shared / "two").iterdir()) == ["hello", "mine"]


def test_what_is_left_alone_is_told(supaclaw: Supaclaw, shared: Path) -> None:
    (shared / "one" / "link").symlink_to("a.md")
    done = supaclaw("files", "sync", "one")
    assert (done.code, done.err) == (0, "supaclaw: link was left alone: a link or a device\n")


def test_the_data_folder_and_what_is_around_it_are_refused(supaclaw: Supaclaw, shared: Path) -> None:
    (shared / "data" / "keys").mkdir(parents=True, exist_ok=True)
    for folder in (".", "data", "data/keys"):
        done = supaclaw("files", "sync", folder)
        assert (done.code, "overlaps the data folder" in " ".join(done.err.split())) == (1, True)
    assert "there is no folder" in supaclaw("files", "sync", "nowhere").err


def test_the_workspace_of_a_running_gateway_is_its_own(
    supaclaw: Supaclaw, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "data" / "workspace").mkdir(parents=True)
    monkeypatch.setattr("gateway.cli.storage.sync.running_pid", lambda _: 1)
    assert (
        "the gateway that runs here synchronises its workspace itself"
        in supaclaw("files", "sync", "data/workspace").err
    )
    monkeypatch.setattr("gateway.cli.storage.sync.running_pid", lambda _: None)
    assert supaclaw("files", "sync", "data/workspace").code == 0


def test_without_a_store_it_says_what_to_do(supaclaw: Supaclaw, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "config.json").write_text("{}")
    assert "workspace.url is not set" in supaclaw("files", "sync", "one").err
    (shared / "config.json").write_text('{"workspace": {"url": "s3://files"}}')
    assert "set all three" in supaclaw("files", "sync", "one").err
    (shared / "config.json").write_text('{"workspace": {"url": "https://files"}}')
    assert "workspace.url: must be a bucket" in supaclaw("files", "sync", "one").err


def test_most_files_missing_is_asked_about(supaclaw: Supaclaw, shared: Path) -> None:
    for number in range(7):
        (shared / "one" / f"{number}").write_text(str(number))
    supaclaw("files", "sync", "one")
    for number in range(7):
        (shared / "one" / f"{number}").unlink()
    done = supaclaw("files", "sync", "one")
    assert (done.code, "7 of 8 files are missing here" in done.err) == (1, True)
    assert supaclaw("files", "sync", "one", "--missing", "restore").code == 0
    assert len(list((shared / "one").iterdir())) == 8


def test_every_action_has_a_word() -> None:
    assert _WORDS.keys() == set(get_args(Action))
