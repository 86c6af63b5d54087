"""Disks that are full or may not be written; small tmpfs mounts, which only root can make."""

import asyncio
import os
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger, Outcome
from tests.chaos.people import Telegrammers, crowd
from tests.fakes.disks import disk, needs_root
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess


def fill(folder: Path) -> Path:
    """Leave no room at all."""
    file = folder / "filler"
    with open(file, "wb", buffering=0) as out:
        for size in (2**20, 4096, 1):
            try:
                while True:
                    out.write(b"\0" * size)
            except OSError:
                continue
    return file


@needs_root
@pytest.mark.chaos
@pytest.mark.fault(Fault.DISK_DATA)
@pytest.mark.parametrize("postgres", ["embedded", "external"])
async def test_a_full_disk_corrupts_nothing_and_is_survived(
    process: GatewayProcess,
    embedded: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    postgres: str,
) -> None:
    gateway = embedded if postgres == "embedded" else process
    people, ledger = Telegrammers(telegram, chance, tools=0.1), Ledger(gateway, telegram)
    with disk(gateway.data, 160 if postgres == "embedded" else 8):
        try:
            gateway.configure(crowd(telegram, models))
            await gateway.start()
            await people.go_on(2.0)
            assert await ledger.settled(30)
            filler = fill(gateway.data)
            await people.go_on(6.0, pause=0.3)
            alive = gateway.running.returncode is None
            filler.unlink()
            people.say()
            if not alive:
                await gateway.ended()
                await gateway.start()
            settled = await ledger.settled(90)
            judge(Fault.DISK_DATA, await ledger.count(people.said))
            assert settled
            assert alive
            await gateway.restart()
            people.say()
            assert await ledger.settled(30)
        finally:
            await gateway.close()


@needs_root
@pytest.mark.chaos
@pytest.mark.fault(Fault.DISK_WORKSPACE)
async def test_a_full_workspace_fails_the_tool_and_not_the_conversation(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    config = crowd(telegram, models)
    models.rules = [Rule("with a tool", tool_calls=(Call("write_file", {"path": "big.md", "content": "x" * 50_000}),))]
    people, ledger = Telegrammers(telegram, chance, tools=0.0), Ledger(process, telegram)
    with disk(process.workspace, 4):
        try:
            process.configure(config)
            await process.start()
            fill(process.workspace)
            people.say(OWNER, "write with a tool")
            for chat in people.chats:
                people.say(chat)
            settled = await ledger.settled(60)
            judge(Fault.DISK_WORKSPACE, await ledger.count(people.said))
            assert settled
            assert process.running.returncode is None
            assert not (process.workspace / "big.md").exists()
        finally:
            await process.close()


@needs_root
@pytest.mark.chaos
@pytest.mark.fault(Fault.READ_ONLY)
@pytest.mark.parametrize("postgres", ["embedded", "external"])
async def test_a_read_only_data_folder_is_told_in_one_line(
    process: GatewayProcess,
    embedded: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    judge: Judge,
    postgres: str,
) -> None:
    gateway = embedded if postgres == "embedded" else process
    gateway.configure(crowd(telegram, models))
    with disk(gateway.data, 8) as data:
        await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,ro", str(data)], check=True)
        ended = await gateway.refused()
    told = [line for line in ended.told.splitlines() if line]
    judge(Fault.READ_ONLY, Outcome())
    assert ended.code not in (0, -9)
    assert len(told) == 1, told
    assert told[0].startswith("supaclaw: ")
    assert str(data) in told[0] or "ead-only" in told[0]


@needs_root
@pytest.mark.fault(Fault.FULL_KILLED)
@pytest.mark.parametrize("killed", ["gateway", "postgres", "both"] if FULL else ["both"])
async def test_who_is_killed_while_the_disk_is_full_loses_nothing(
    embedded: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    killed: str,
) -> None:
    people, ledger, rounds = Telegrammers(telegram, chance, tools=0.1), Ledger(embedded, telegram), 10 if FULL else 1
    embedded.configure(crowd(telegram, models))
    with disk(embedded.data, 160):
        try:
            await embedded.start()
            for _ in range(rounds):
                await people.go_on(1.0)
                filler = fill(embedded.data)
                await people.go_on(chance.uniform(0.2, 3.0) if FULL else 0.2, pause=0.3)
                if killed != "gateway":
                    kill_postgres(embedded.data)
                if killed != "postgres":
                    await embedded.kill()
                    await embedded.spawn()
                if killed == "both":  # it waits, or works on what a recovery made room for
                    await embedded.hears("disk is full")
                await people.go_on(chance.uniform(0.5, 4.0) if FULL else 0.2, pause=0.3)
                assert embedded.running.returncode is None
                filler.unlink()
                await embedded.hears("ready")
            people.say()
            settled = await ledger.settled(60)
            judge(Fault.FULL_KILLED, await ledger.count(people.said, tries=rounds))
            assert settled
        finally:
            await embedded.close()


def kill_postgres(data: Path) -> None:
    """All of its processes, as a machine that loses its power does."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").samefile(data / "postgres"):
                os.kill(int(process.name), signal.SIGKILL)


@needs_root
@pytest.mark.fault(Fault.POWER_CUT)
async def test_a_power_cut_that_tears_what_was_being_written_loses_nothing(
    embedded: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    people, ledger = Telegrammers(telegram, chance, tools=0.1), Ledger(embedded, telegram)
    embedded.configure(crowd(telegram, models))
    torn = [b"", b"\0" * 64, b"\xff\xfe garbage\n", f"{os.getpid()}\n".encode(), b"1\n"]
    tears = torn if FULL else torn[:1]
    await embedded.start()
    for tear in tears:
        await people.go_on(0.5)
        await embedded.kill()
        kill_postgres(embedded.data)
        for name in UNSYNCED:
            (embedded.data / name).parent.mkdir(exist_ok=True)
            (embedded.data / name).write_bytes(tear)
        await embedded.start()
    people.say()
    settled = await ledger.settled(30)
    judge(Fault.POWER_CUT, await ledger.count(people.said, tries=len(tears)))
    assert settled


UNSYNCED = (
    "gateway.pid",
    "health",
    "starts",
    "keys/local-token",
    "keys/page-name",
    "journal/checked",
    "logs/postgres.log",
    "postgres/postmaster.pid",
    "postgres/postmaster.opts",
    "postgres/socket/.s.PGSQL.5432.lock",
    "postgres/global/pg_internal.init",
)
"""What no fsync brings to the disk before it counts."""
