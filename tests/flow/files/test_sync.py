"""When a gateway synchronises, what it tells, and which tasks run where meanwhile."""

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.app.parts.upkeep import FILES, WORKERS_JOBS
from gateway.config.model import Config, WorkspaceStore
from gateway.domain.errors import TryAgainLater
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from tests.fakes.s3 import Careless, settings
from tests.flow.files.machines import Machine, machines_of
from tests.flow.path import MEMBER, FakeModel, MessagePath, build
from tests.store.world import World


def configure(path: MessagePath, store: WorkspaceStore | None, allow: tuple[str, ...] = ("127.0.0.1",)) -> None:
    update = {
        "workspace": store or WorkspaceStore(),
        "net": Config.model_validate({"net": {"private_allow": allow}}).net,
    }
    path.current.config = path.current.config.model_copy(update=update)


@pytest.fixture
async def path(database: Database, tmp_path: Path, careless: Careless, bucket: str) -> "Iterator[MessagePath]":
    """A gateway whose workspace is on a store."""
    workspace = tmp_path / "gateway" / "workspace"
    workspace.mkdir(parents=True)
    path = await build(database, workspace, FakeModel())
    configure(path, settings(careless.endpoint, bucket))
    yield path
    path.file_sync.close()


@pytest.fixture
def bob(path: MessagePath, tmp_path: Path, careless: Careless, bucket: str) -> Iterator[Machine]:
    """Another machine of the same owner."""
    world = World(path.database, path.people.owner.id, *(None, None))  # type: ignore[arg-type]
    with machines_of(world, tmp_path, careless.endpoint, bucket) as machines:
        yield machines("bob")


async def test_without_a_store_nothing_is_looked_for(path: MessagePath) -> None:
    configure(path, None)
    assert await path.file_sync.look() is None
    await path.file_sync.before_run(path.people.owner.id)
    await path.file_sync.after_turn(path.people.owner.id)
    assert path.vitals().files is None
    assert not path.file_sync.shared


async def test_it_looks_every_so_often_and_after_runs(path: MessagePath, bob: Machine) -> None:
    (path.workspace / "a.md").write_text("here")
    assert await path.file_sync.look() is not None
    await bob.sync()
    assert bob.read("a.md") == "here"
    assert (path.vitals().files or "").startswith("the same everywhere at ")

    bob.write("b.md", "there")
    await bob.sync()
    await path.file_sync.look()
    assert not (path.workspace / "b.md").exists()
    await path.file_sync.before_run(path.people.owner.id)
    assert (path.workspace / "b.md").read_text() == "there"
    (path.workspace / "c.md").write_text("made by a run")
    await path.file_sync.after_turn(path.people.owner.id)
    await bob.sync()
    assert bob.read("c.md") == "made by a run"


async def test_a_conflict_is_told_to_the_owner_once(path: MessagePath, bob: Machine) -> None:
    (path.workspace / "a.md").write_text("base")
    await path.file_sync.after_turn(path.people.owner.id)
    await bob.sync()
    bob.write("a.md", "bob's")
    await bob.sync()
    (path.workspace / "a.md").write_text("ada's")
    told = list[str]()

    async def tell(text: str) -> None:
        told.append(text)

    path.file_sync.tell_owner = tell
    for _ in range(2):
        await path.file_sync.after_turn(path.people.owner.id)
    [text] = told
    assert "a.conflict-" in text
    assert hashlib.sha256(b"ada's").hexdigest()[:8] in text
    assert (path.workspace / "a.md").read_text() == "bob's"


async def test_while_the_store_is_down_only_the_machine_with_the_files_works_on_them(
    path: MessagePath, bob: Machine, careless: Careless
) -> None:
    await path.file_sync.look()
    path.workplace.elsewhere = "another"
    assert path.parts.work.worker.able("agent")
    assert path.file_sync.shared
    bob.write("news.md", "not here yet")
    await bob.sync()
    careless.down = True
    with pytest.raises(TryAgainLater, match="the files can't be fetched"):
        await path.file_sync.before_run(path.people.owner.id)
    assert not path.parts.work.worker.able("agent")
    assert path.parts.work.worker.able("chat")
    assert "answers with an error (503)" in (path.vitals().files or "")

    path.workplace.elsewhere = ""
    await path.file_sync.before_run(path.people.owner.id)
    assert path.parts.work.worker.able("agent")
    careless.down = False
    await path.file_sync.after_turn(path.people.owner.id)
    assert path.file_sync.shared


def test_a_worker_with_shared_files_runs_agents_tasks_and_no_chats(path: MessagePath) -> None:
    path.workplace.kind = "worker"
    path.workplace.elsewhere = "another"
    assert not path.parts.work.worker.able("agent")
    path.file_sync.works = True
    kinds = ("agent", "heartbeat", "chat", "ingest", "approval", "summarise")
    assert list(filter(path.parts.work.worker.able, kinds)) == ["agent", "heartbeat", "summarise"]
    assert FILES in WORKERS_JOBS


async def test_keys_that_are_missing_are_told(path: MessagePath) -> None:
    configure(path, WorkspaceStore(url="s3://files"))  # type: ignore[call-arg]
    await path.file_sync.look()
    assert "set all three" in (path.vitals().files or "")
    await path.file_sync.after_turn(path.people.owner.id)


async def test_the_files_of_members_are_shared_too(
    path: MessagePath, tmp_path: Path, careless: Careless, bucket: str
) -> None:
    async with path.database.transaction() as tx:
        member = await principals.ensure_member(tx, "Bo", f"fake:{MEMBER}")
    await path.people.refresh(path.database)
    mine = path.environments.of(member).workspace
    await mine.write("notes.md", "Bo's", Label.UNTRUSTED)
    await path.file_sync.look()
    found = await path.rows("select principal_id, path from synced_files")
    assert found == [(member, "notes.md")]

    other = tmp_path / "other" / "workspace"
    other.mkdir(parents=True)
    second = await build(path.database, other, FakeModel())
    second.current.config = path.current.config
    await second.file_sync.look()
    assert (second.environments.of(member).workspace.root / "notes.md").read_text() == "Bo's"
    assert not any(other.iterdir())
    second.file_sync.close()


async def test_files_that_are_left_alone_are_in_the_status(path: MessagePath) -> None:
    (path.workspace / "link").symlink_to("nowhere")
    await path.file_sync.look()
    assert "left alone: link: a link or a device" in (path.vitals().files or "")


async def test_what_nobody_has_any_more_is_swept_once_a_day_by_the_machine_with_the_files(
    path: MessagePath, careless: Careless, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.flow.files.sync.KEPT", -timedelta(hours=1))
    path.workplace.elsewhere = "another"
    for text in ("one", "two"):
        (path.workspace / "a.md").write_text(text)
        await path.file_sync.after_turn(path.people.owner.id)
    await path.file_sync.look()
    assert not any(asked.startswith("DELETE") for asked in careless.asked)

    path.workplace.elsewhere = ""
    for _ in range(2):
        path.file_sync._due = 0
        await path.file_sync.look()
    deleted = [asked for asked in careless.asked if asked.startswith("DELETE")]
    assert [each.rpartition("/")[2] for each in deleted] == [hashlib.sha256(b"one").hexdigest()]
