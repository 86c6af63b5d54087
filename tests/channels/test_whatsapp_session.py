"""The file with the keys of the device, as neonize's own library makes it: copied while it is in use."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from channels.whatsapp import backup_files
from channels.whatsapp.store import LinkedAccount, Store
from gateway.domain.errors import OwnerMustAct

NO_NETWORK = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}

CONNECTS = """
import asyncio, sys
from pathlib import Path
from channels.whatsapp.sdk import preload
preload()
from channels.whatsapp.link import new_client
from channels.whatsapp.store import Spool, Store
from neonize.exc import NeonizeError

async def main():
    store = Store(Path(sys.argv[1]))
    store.open()
    try:
        await (await new_client(store.session, Spool(store.spool), print).connect())
    except NeonizeError as error:
        print(error)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which neonize has been without reaching WhatsApp."""
    folder = tmp_path_factory.mktemp("whatsapp")
    done = subprocess.run(
        [sys.executable, "-c", CONNECTS, str(folder)],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
        env=NO_NETWORK,
    )
    assert "failed to dial whatsapp" in done.stdout, done
    return folder


@pytest.fixture
def folder(made: Path) -> Iterator[Path]:
    """The same, with an account and one message that is not accepted yet."""
    store = Store(made)
    store.remember(LinkedAccount("4915550001"))
    (store.spool / "000000000007.event").write_bytes(b"said")
    yield made
    for path in (made / "account.json", *store.spool.iterdir()):
        path.unlink(missing_ok=True)


def copied(folder: Path) -> dict[str, bytes]:
    return {name: read() for name, read in backup_files(folder)}


def name_learnt(connection: sqlite3.Connection) -> list[tuple[str]]:
    return connection.execute("select lid from whatsmeow_lid_map").fetchall()


def test_a_copy_holds_what_was_committed_and_nothing_half_done(folder: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(folder / "session.sqlite", isolation_level=None)) as device:
        device.execute("delete from whatsmeow_lid_map")
        device.execute("insert into whatsmeow_lid_map (lid, pn) values ('900001', '77')")
        device.execute("begin immediate")
        device.execute("insert into whatsmeow_lid_map (lid, pn) values ('900002', '78')")
        files = copied(folder)
        device.execute("rollback")

    assert list(files) == ["session.sqlite", "account.json", "spool/000000000007.event"]
    assert files["spool/000000000007.event"] == b"said"
    (tmp_path / "copy.sqlite").write_bytes(files["session.sqlite"])
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as copy:
        assert copy.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert name_learnt(copy) == [("900001",)]


def test_a_copy_that_hangs_does_not_keep_the_device_from_writing(folder: Path) -> None:
    """A process that was stopped in the middle of copying would else make messages unreadable."""
    with (
        closing(sqlite3.connect(folder / "session.sqlite", isolation_level=None)) as copying,
        closing(sqlite3.connect(folder / "session.sqlite", isolation_level=None, timeout=0)) as device,
    ):
        copying.execute("begin")
        name_learnt(copying)
        device.execute("insert or replace into whatsmeow_lid_map (lid, pn) values ('900003', '79')")
        assert ("900003",) in name_learnt(device)


def test_foreign_keys_still_hold(made: Path) -> None:
    """neonize's own parameter would be lost behind ours; whatsmeow makes no table without them."""
    with closing(sqlite3.connect(made / "session.sqlite")) as session:
        assert session.execute("pragma journal_mode").fetchone() == ("wal",)
        assert session.execute("select count(*) from sqlite_master where name like 'whatsmeow_%'").fetchone() > (10,)


def test_without_an_account_there_is_nothing_to_copy(made: Path, tmp_path: Path) -> None:
    assert copied(made) == copied(tmp_path) == {}


def test_a_message_that_is_accepted_meanwhile_is_no_failure(folder: Path) -> None:
    *_, (name, read) = backup_files(folder)
    (folder / name).unlink()

    with pytest.raises(FileNotFoundError):
        read()


def test_a_damaged_session_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    Store(tmp_path).remember(LinkedAccount("4915550001"))
    (tmp_path / "session.sqlite").write_bytes(b"no database" * 100)

    with pytest.raises(OwnerMustAct, match=r"cannot be copied \(file is not a database\): link WhatsApp again"):
        copied(tmp_path)
