"""Finding 16: what members and groups may take of the disk and of the clock is bounded; the owner's share is not."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.agent.work.schedules import LEAST_GAP, MOST_SCHEDULES, ScheduleRequest, Schedules
from gateway.domain.conversation.model import ToolCall
from gateway.domain.people.access import Access
from gateway.domain.principals import Label, Role
from gateway.flow.files.uploads import UploadRefused
from gateway.store.connection.pool import Connection, Database
from gateway.store.people import principals
from gateway.timetable.cron import shortest_gap
from gateway.timetable.schedules import InvalidSchedule
from gateway.workspace.files.access import MEASURE_SECONDS, Quota
from gateway.workspace.files.paths import WorkspaceError
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, in_turn, results, said

NOW = datetime(2026, 11, 21, 22, 2, tzinfo=UTC)
MB = 1 << 20
WHO = {"member": {"sender": MEMBER, "chat": MEMBER}, "group": {"chat": "g", "private": False}}


@pytest.fixture
async def path(database: Database, tmp_path: Path) -> MessagePath:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    path = await build(database, workspace, FakeModel())
    path.people.allow({"fake": Access(allow=frozenset({MEMBER}))})
    path.workspaces.member_mb = lambda: 1
    return path


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


def wrote(name: str, size: int) -> ToolCall:
    return ToolCall("", "write_file", json.dumps({"path": name, "content": "x" * size}))


@pytest.mark.parametrize("who", WHO)
async def test_what_does_not_fit_is_refused_in_words(path: MessagePath, who: str) -> None:
    calls = [said("", wrote(f"{n}.txt", 300_000)) for n in range(4)]
    path.model.answer = in_turn(*calls, said("done"))
    async with path.working():
        assert await path.ask("write", **WHO[who]) == "done"
    *fine, last = results(path.model.prompts[-1])
    assert all(each["ok"] for each in fine)
    assert last["error"] == "quota"
    assert "may take 1 MB (limits.member_mb)" in last["message"]
    [(member,)] = await path.rows("select id from principals where role = 'member'")
    with pytest.raises(UploadRefused, match=r"^The files here may take 1 MB .*ask the owner to delete "):
        await path.uploads.keep(member, "a.bin", "", pieces(b"x" * 300_000), origin="fake")
    root = path.environments.of(member).workspace.root
    assert sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) < MB


async def test_the_owner_is_free(path: MessagePath) -> None:
    path.model.answer = in_turn(*(said("", wrote(f"{n}.txt", 300_000)) for n in range(5)), said("done"))
    async with path.working():
        await path.ask("write")
    assert all(each["ok"] for each in results(path.model.prompts[-1]))
    assert await path.uploads.keep(path.people.owner.id, "a.bin", "", pieces(b"x" * 500_000), origin="web")


async def test_another_environment_of_a_member_has_the_same_quota(path: MessagePath) -> None:
    member = await path.database.run(lambda tx: principals.add(tx, Role.MEMBER, "Bo", ["fake:9"]))
    first = path.environments.of(member).workspace
    path.environments.forget()
    assert path.environments.of(member).workspace.quota is first.quota is not None


class Folder:
    """A folder with a limit of 1 MB, and a clock that goes when it is told."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 0.0
        self.quota = Quota(root, lambda: 1, lambda: self.now)

    def put(self, name: str, size: int) -> None:
        self.quota.reserve(size)
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_bytes(b"x" * size)


def test_what_lies_there_counts_and_what_is_deleted_makes_room(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "old").write_bytes(b"x" * 900_000)
    with pytest.raises(WorkspaceError):
        folder.put("new", 200_000)
    (tmp_path / "old").unlink()
    folder.now += MEASURE_SECONDS
    folder.put("new", 200_000)


def test_writing_a_file_anew_takes_no_more_room(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for _ in range(50):
        folder.put("a", 200_000)
        folder.now += MEASURE_SECONDS


def test_many_small_files_fill_it_too(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for number in range(200):
        folder.put(str(number), 0)
    with pytest.raises(WorkspaceError):
        folder.put("large", MB - 200 * 1000)


def test_the_folder_is_not_walked_for_each_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, walks = Folder(tmp_path), []
    monkeypatch.setattr("gateway.workspace.files.access.size_of", lambda root: walks.append(root) or 0)
    for _ in range(100):
        folder.quota.reserve(100)
    assert len(walks) == 1


# Schedules


@pytest.mark.parametrize(
    ("cron", "minutes"),
    [
        ("* * * * *", 1),
        ("*/5 * * * *", 5),
        ("0,4 12 * * *", 4),
        ("58 * * * *", 60),
        ("2,58 * * * *", 4),
        ("2,58 8,12 * * *", 56),
        ("1 0 * * *", 1440),
        ("0,59 0,23 * * *", 1),
        ("*/7 * * * *", 4),
        ("1-59/2 3 1 1 *", 2),
    ],
)
def test_the_shortest_time_between_two_runs_is_known(cron: str, minutes: int) -> None:
    assert shortest_gap(cron) == timedelta(minutes=minutes)


async def schedules(tx: Connection, most: int | None) -> Schedules:
    owner = Role.OWNER if most is None else Role.MEMBER
    return Schedules(tx, await principals.add(tx, owner, "Bo", [f"fake:{uuid4()}"]), NOW, "UTC", most=most)


async def test_a_member_cannot_have_it_run_every_minute_by_any_way(database: Database) -> None:
    async with database.transaction() as tx:
        theirs = await schedules(tx, MOST_SCHEDULES)
        often, words = {"cron_expr": "* * * * *"}, r"at least 5 minutes apart; use a cron_expr"
        with pytest.raises(InvalidSchedule, match=words):
            await theirs.add(ScheduleRequest("fake", Label.OWNER), {"name": "a", "prompt": "p", **often})
        row = await theirs.add(
            ScheduleRequest("fake", Label.OWNER), {"name": "a", "prompt": "p", "cron_expr": "*/5 * * * *"}
        )
        with pytest.raises(InvalidSchedule, match=words):
            await theirs.update("a", often, Label.OWNER)
        unbound = replace(theirs, most=None)  # as it was before there was a floor
        await unbound.update("a", often, Label.OWNER)
        await unbound.pause("a")
        with pytest.raises(InvalidSchedule, match=words):
            await theirs.resume(str(row.id))
        assert timedelta(minutes=5) == LEAST_GAP


async def test_the_owner_may_have_it_run_every_minute(database: Database) -> None:
    async with database.transaction() as tx:
        mine = await schedules(tx, None)
        await mine.add(ScheduleRequest("fake", Label.OWNER), {"name": "a", "prompt": "p", "cron_expr": "* * * * *"})
        await mine.pause("a")
        await mine.resume("a")


async def test_paused_and_finished_ones_do_not_get_round_the_limit(database: Database) -> None:
    async with database.transaction() as tx:
        theirs = await schedules(tx, MOST_SCHEDULES)
        once = {"prompt": "p", "run_at": "2026-11-22T09:00"}
        for number in range(MOST_SCHEDULES):
            await theirs.add(ScheduleRequest("fake", Label.OWNER), {"name": f"s{number}", **once})
            await theirs.pause(f"s{number}")
        with pytest.raises(InvalidSchedule, match="the most allowed"):
            await theirs.add(ScheduleRequest("fake", Label.OWNER), {"name": "more", **once})
        await tx.execute("update schedules set completed_at = now(), next_run_at = null where name in ('s0', 's1')")
        await theirs.add(ScheduleRequest("fake", Label.OWNER), {"name": "more", **once})
        await theirs.update("s0", {"run_at": "2026-11-23T09:00"}, Label.OWNER)
        with pytest.raises(InvalidSchedule, match="the most allowed"):
            await theirs.update("s1", {"run_at": "2026-11-23T09:00"}, Label.OWNER)
        await theirs.resume("s1")
        live = "select count(*) from schedules where completed_at is null"
        assert await tx.fetchval(live) == MOST_SCHEDULES


@pytest.mark.parametrize("who", WHO)
async def test_the_tool_and_the_command_know_who_asks(path: MessagePath, who: str) -> None:
    minute = {"name": "tick", "prompt": "p", "cron_expr": "* * * * *", "timezone": "UTC"}
    call = ToolCall("", "cron", json.dumps({"action": "add", **minute}))
    path.model.answer = in_turn(said("", call), said("done"))
    async with path.working():
        await path.ask("please", **WHO[who])
    assert results(path.model.prompts[-1])[-1]["error"] == "refused"
    await path.rows(
        """insert into schedules (principal_id, name, prompt, cron, zone, misfire, origin, paused_at)
           select id, 'tick', 'p', '* * * * *', 'UTC', 'skip', 'fake', now() from principals where role = 'member'"""
    )
    assert "at least 5 minutes" in await path.ask("/schedules resume tick", **WHO[who])
