import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from gateway.app.storage.database import reach
from gateway.app.storage.manifest import Manifest
from gateway.app.storage.restore import RESTORED, check_restore_finished, restore
from gateway.config.data.instance import hold_instance
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.errors import OwnerMustAct
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.store.dump import IN_DOUBT
from gateway.store.files import contents
from gateway.store.migrate import migrate
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion
from tests.app.storage.conftest import House
from tests.background.upkeep.test_memory_index import Job
from tests.conftest import Server
from tests.store.memory.test_memories import add
from tests.store.world import World

FILES = {
    "workspace/AGENTS.md": b"Be kind.\n",
    "workspace/deep/er/täglich.md": b"milk",
    "workspace/binary": bytes(range(256)) * 5000,
    "workspace/empty.md": b"",
    "principals/1/USER.md": b"a friend",
}


async def put_back(place: House, path: Path) -> tuple[Manifest, Path | None]:
    reached = reach(place.environment, place.config, mine=True)
    return await restore(place.environment, place.config, path, reached)


@pytest.fixture
async def saved(house: House, world: World, tmp_path: Path) -> Path:
    """A backup of a gateway that was asked one question and was sending two answers."""
    for name, content in FILES.items():
        house.put(name, content)
    (house.home / "data/workspace/link").symlink_to("deep/er")
    (house.home / "data/workspace/deep/er/täglich.md").chmod(0o640)
    house.configure(owner={"name": "Ada"})
    await world.ask("still open?")
    for part, state in enumerate(("sending", "pending")):
        answer = await world.answer(f"answer {part}")
        await world.do(
            "insert into outbox (principal_id, address_id, message_id, text, state) values ($1, $2, $3, 'x', $4)",
            world.principal,
            world.address,
            answer,
            state,
        )
    await world.ask("and this?")
    await house.back_up(tmp_path / "saved.tar.gz")
    return tmp_path / "saved.tar.gz"


async def texts(database: Database, kind: str) -> list[str]:
    async with database.connection() as conn:
        return [row[0] for row in await conn.fetch("select text from messages where kind = $1 order by id", kind)]


async def test_everything_comes_back(saved: Path, other: House, target: Database, world: World) -> None:
    _, config = await put_back(other, saved)

    data = other.home / "data"
    found = {
        str(path.relative_to(data)): path.read_bytes()
        for tree in ("workspace", "principals")
        for path in (data / tree).rglob("*")
        if path.is_file() and not path.is_symlink() and "link" not in path.parts
    }
    assert found == FILES
    assert (data / "workspace/link").readlink() == Path("deep/er")
    assert (data / "workspace/deep/er/täglich.md").stat().st_mode & 0o777 == 0o640
    assert config == other.environment.config
    assert json.loads(config.read_text()) == {"owner": {"name": "Ada"}}
    assert config.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in data.iterdir()) == [
        "channels",
        "gateway.pid",
        "keys",
        "principals",
        "workspace",
    ]
    assert await texts(target, "user") == ["still open?", "and this?"]
    assert await texts(target, "assistant") == ["answer 0", "answer 1"]
    async with target.connection() as conn:
        assert await conn.fetchval("select count(*) from messages where kind = 'user' and answered_by is null") == 2
        assert await conn.fetchval("select max(number) from migrations") == await world.value(
            "select max(number) from migrations"
        )


async def test_folders_that_a_container_has_mounted_are_filled_and_not_replaced(
    house: House, world: World, other: House, tmp_path: Path
) -> None:
    for name in ("sessions/2026-01-01/09-00-00.md", "memory/INDEX.md", "notes.md"):
        house.put(f"workspace/{name}", b"said")
    await world.ask("hello")
    await house.back_up(tmp_path / "saved.tar.gz")
    root = other.home / "data/workspace"
    for name in ("sessions", "memory"):
        (root / name).mkdir(parents=True)
    before = [each.stat().st_ino for each in (root, root / "sessions", root / "memory")]

    await put_back(other, tmp_path / "saved.tar.gz")

    assert [each.stat().st_ino for each in (root, root / "sessions", root / "memory")] == before
    assert (root / "sessions/2026-01-01/09-00-00.md").read_bytes() == b"said"
    assert (root / "memory/INDEX.md").read_bytes() == b"said"


async def test_vectors_are_not_in_a_backup_and_are_made_again(
    house: House, other: House, target: Database, world: World, server: Server, tmp_path: Path
) -> None:
    for n in range(3):
        await add(world, f"fact {n}")
    await Job(world).look()
    assert await Job(world).vectors() == [("local:fake", 3)]
    await house.back_up(tmp_path / "saved.tar.gz")
    await put_back(other, tmp_path / "saved.tar.gz")
    async with target.connection() as conn:
        assert await conn.fetchval("select count(*) from memories") == 3
        assert await conn.fetchval("select count(*) from memory_models") == 0
        name = await conn.fetchval("select current_database()")
    admin = await asyncpg.connect(server.maintenance_dsn.replace("@/postgres?", f"@/{name}?"))
    await admin.execute("create extension vector")
    await admin.close()
    restored = Job(replace(world, database=target))
    assert await restored.look() is None
    assert await restored.vectors() == [("local:fake", 3)]


async def test_what_may_have_been_sent_is_not_sent_again_and_its_chat_is_told_once(
    saved: Path, other: House, target: Database
) -> None:
    await put_back(other, saved)

    async with target.connection() as conn:
        rows = await conn.fetch("select text, state, notice, error from outbox order by id")
    assert [tuple(row) for row in rows] == [
        ("x", "uncertain", False, IN_DOUBT),
        ("x", "uncertain", False, IN_DOUBT),
        (RESTORED, "pending", True, None),
    ]
    assert await texts(target, "notice") == [RESTORED]


async def test_config_json_is_written_beside_the_one_that_is_there(saved: Path, other: House) -> None:
    other.configure(web={"port": 1})

    _, config = await put_back(other, saved)

    assert json.loads(other.environment.config.read_text()) == {"web": {"port": 1}}
    assert config == other.home / "config.restored.json"
    assert json.loads(config.read_text()) == {"owner": {"name": "Ada"}}


async def test_keys_come_back_with_the_secrets(house: House, world: World, other: House, tmp_path: Path) -> None:
    house.put("keys/journal", "a key").chmod(0o600)
    await house.back_up(tmp_path / "a.tar.gz", with_secrets=True)

    await put_back(other, tmp_path / "a.tar.gz")

    [key] = (other.home / "data/keys").iterdir()
    assert (key.name, key.read_text(), key.stat().st_mode & 0o777) == ("journal", "a key", 0o600)


async def test_what_cannot_be_restored_changes_nothing(saved: Path, other: House, target: Database) -> None:
    mine = other.put("workspace/mine.md", "precious")

    with pytest.raises(OwnerMustAct, match=r"workspace is not empty \(it holds mine\.md\)"):
        await put_back(other, saved)
    mine.rename(other.home / "data" / "mine.md")
    with pytest.raises(OwnerMustAct, match=r"data is not empty \(it holds mine\.md\).*SUPACLAW_DATA"):
        await put_back(other, saved)

    (other.home / "data/mine.md").unlink()
    with hold_instance(other.home / "data"), pytest.raises(OwnerMustAct, match="a gateway already runs"):
        await put_back(other, saved)
    flip_a_bit(saved)
    with pytest.raises(OwnerMustAct, match="not a complete SupaClaw backup"):
        await put_back(other, saved)

    assert sorted(path.name for path in other.home.rglob("*")) == ["data", "gateway.pid", "workspace"]
    async with target.connection() as conn:
        assert await conn.fetchval("select to_regclass('supaclaw.messages')") is None


async def test_a_database_that_is_not_empty_is_left_alone(saved: Path, house: House, other: House) -> None:
    occupied = House(other.home, house.dsn)

    with pytest.raises(OwnerMustAct, match=r"the database is not empty: .* database\.url"):
        await put_back(occupied, saved)

    assert not (other.home / "data/workspace").exists()
    check_restore_finished(other.home / "data")
    await put_back(other, saved)
    with pytest.raises(OwnerMustAct, match="the database is not empty"):
        await put_back(House(other.home.parent / "third", other.dsn), saved)


def flip_a_bit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


class Crash(Exception):
    """Stands for the end of the process."""


BREAKS = ["restore.load", "restore._note_uncertain_answers", "restore.os.sync"]


@pytest.mark.parametrize("where", BREAKS)
async def test_one_that_broke_off_is_finished_by_the_same_command(
    saved: Path, other: House, target: Database, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(f"gateway.app.storage.{where}", crash)
        with pytest.raises(Crash):
            await put_back(other, saved)

    with pytest.raises(OwnerMustAct, match=r"was interrupted: finish it with the same `supaclaw restore FILE`"):
        check_restore_finished(other.home / "data")
    await put_back(other, saved)

    check_restore_finished(other.home / "data")
    assert (other.home / "data/workspace/binary").read_bytes() == FILES["workspace/binary"]
    assert await texts(target, "user") == ["still open?", "and this?"]
    assert await texts(target, "notice") == [RESTORED]
    assert json.loads(other.environment.config.read_text()) == {"owner": {"name": "Ada"}}
    assert not (other.home / "config.restored.json").exists()


async def test_another_archive_does_not_go_on_where_one_broke_off(
    saved: Path, house: House, other: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.back_up(tmp_path / "second.tar.gz")

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr("gateway.app.storage.restore.put_in_place", crash)
        with pytest.raises(Crash):
            await put_back(other, saved)

    with pytest.raises(OwnerMustAct, match="the database is not empty"):
        await put_back(other, tmp_path / "second.tar.gz")
    with pytest.raises(OwnerMustAct, match="was interrupted"):
        await House(other.home, house.dsn).back_up(tmp_path / "third.tar.gz")
    await put_back(other, saved)
    assert is_whole(other)


async def test_one_that_was_killed_while_it_unpacked_is_done_again(saved: Path, other: House) -> None:
    other.put("restore.unfinished/unpacked/workspace/half.md", "ha")
    with pytest.raises(OwnerMustAct, match="was interrupted"):
        check_restore_finished(other.home / "data")

    await put_back(other, saved)

    assert is_whole(other)
    assert not (other.home / "data/workspace/half.md").exists()


def is_whole(place: House) -> bool:
    check_restore_finished(place.home / "data")
    return (place.home / "data/workspace/binary").read_bytes() == FILES["workspace/binary"]


async def test_a_backup_of_an_older_schema_is_brought_up(
    house: House, other: House, target: Database, tmp_path: Path, empty_dsn: str
) -> None:
    old = House(house.home, empty_dsn)
    async with await Database.connect(empty_dsn) as database:
        await migrate(database, upto=2)
        async with database.connection() as conn:
            await conn.execute("insert into principals (id, role, name) values (gen_random_uuid(), 'owner', 'Ada')")
    await old.back_up(tmp_path / "old.tar.gz")
    async with target.connection() as conn:
        await conn.execute("drop schema supaclaw cascade")

    await put_back(other, tmp_path / "old.tar.gz")

    async with target.connection() as conn:
        assert await conn.fetchval("select name from principals") == "Ada"
        assert await conn.fetchval("select max(number) from migrations") > 2


async def test_a_kill_while_files_come_back_trusts_none_that_has_no_label(
    saved: Path, other: House, target: Database, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise OSError("killed at the first file")

    monkeypatch.setattr("gateway.app.storage.restore.put_in_place", killed)
    with pytest.raises(OwnerMustAct, match="killed"):
        await put_back(other, saved)
    async with target.connection() as conn:
        assert await contents.label(conn, world.principal, "of an unknown file") is Label.UNTRUSTED


async def test_labels_come_back_with_the_files(
    house: House, other: House, target: Database, world: World, tmp_path: Path
) -> None:
    house.put("workspace/mine.md", b"mine")
    house.put("workspace/theirs.md", b"theirs")
    hashes = [hashlib.sha256(text).hexdigest() for text in (b"mine", b"theirs")]
    async with world.database.connection() as conn:
        for sha256, label in zip(hashes, (Label.OWNER, Label.UNTRUSTED), strict=True):
            await contents.note(conn, world.principal, sha256, label, "agent")
    await house.back_up(tmp_path / "saved.tar.gz")

    await put_back(other, tmp_path / "saved.tar.gz")

    async with target.connection() as conn:
        labels = [await contents.label(conn, world.principal, sha256) for sha256 in hashes]
    assert labels == [Label.OWNER, Label.UNTRUSTED]


LABELLED = """select c.table_name as name, array_agg(a.attname order by a.attnum) as key
              from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
              join pg_index i on i.indrelid = format('%I.%I', c.table_schema, c.table_name)::regclass and i.indisprimary
              join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
              where c.table_schema = 'supaclaw' and c.column_name = 'label' and t.table_type = 'BASE TABLE'
              group by c.table_name"""
"""Tables whose rows have labels, with the columns of their keys."""


async def labels(database: Database) -> dict[tuple[str, ...], int]:
    """Of every row, by its table and key."""
    async with database.connection() as conn:
        return {
            (table["name"], *map(str, row[1:])): row[0]
            for table in await conn.fetch(LABELLED)
            for row in await conn.fetch(f"select label, {', '.join(table['key'])} from {table['name']}")
        }


async def test_every_row_has_its_label_again(
    house: House, other: House, target: Database, world: World, tmp_path: Path
) -> None:
    for number in range(6):
        await world.ask(f"question {number}")
        await world.do("insert into sessions (id, principal_id) values (gen_random_uuid(), $1)", world.principal)
        await add(world, f"fact {number}")
        async with world.database.transaction() as tx:
            await contents.note(tx, world.principal, f"{number:064}", Label.OWNER, "agent")
            what = ("pay", {"usd": number}, "Shall I?", Label.OWNER)
            question = ReviewQuestion(world.principal, world.principal, *what, act=ToolClass.IRREVERSIBLE)
            await reviews.ask(tx, question, datetime.now(UTC))
    for table in ("sessions", "messages", "memories", "contents", "reviews"):
        await world.do(f"""update {table} t set label = n.row % 3 from (
                             select ctid, row_number() over () as row from {table}) n where n.ctid = t.ctid""")
    before = await labels(world.database)
    assert {(row[0], label) for row, label in before.items()} >= {
        (table, label) for table in ("sessions", "messages", "memories", "contents", "reviews") for label in Label
    }
    await house.back_up(tmp_path / "saved.tar.gz")

    await put_back(other, tmp_path / "saved.tar.gz")

    after = await labels(target)
    assert {row: after.get(row) for row in before} == before
    assert {label for row, label in after.items() if row not in before} <= {Label.UNTRUSTED}
