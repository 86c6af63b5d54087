"""What somebody deletes or replaces while it runs: files of the instance, config.json, the workspace; descriptors."""

import asyncio
import os
import random
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger, Outcome
from tests.chaos.people import Telegrammers, crowd
from tests.chaos.test_limits import memory
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, until

Damage = Callable[[Path], None]


def gone(path: Path) -> None:
    """Delete it, whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def pipe(path: Path) -> None:
    gone(path)
    os.mkfifo(path)


def zeros(path: Path) -> None:
    gone(path)
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    gone(path)
    path.symlink_to(path)


def folder(path: Path) -> None:
    gone(path)
    path.mkdir()


def blanks(path: Path) -> None:
    gone(path)
    path.write_bytes(b" " * 50_000_000)


DAMAGES: tuple[Damage, ...] = (gone, pipe, zeros, loop, folder, blanks)
FILES = (
    "gateway.pid", "health", "instance", "starts", "journal", "journal/checked", "keys/journal", "keys/local-token",
    "keys/postgres.supaclaw", "logs/gateway.log", "logs/postgres.log", "checkpoints", "checkpoints/lock",
    "workspace/AGENTS.md", "workspace/USER.md", "postgres/socket/.s.PGSQL.5432", "postgres/postmaster.pid",
)  # fmt: skip
FOLDERS = ("keys", "logs", "workspace", "workspace/sessions", "postgres/socket")


@pytest.mark.chaos
@pytest.mark.fault(Fault.DELETED)
async def test_what_is_deleted_while_it_runs_stops_nothing(
    embedded: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    """The health file is fresh, and the commands find the process, at the end; so does the next start."""
    embedded.configure(crowd(telegram, models))
    await embedded.start()
    people, ledger = Telegrammers(telegram, chance), Ledger(embedded, telegram)
    faults = [(name, damage) for name in FILES for damage in DAMAGES] + [(name, gone) for name in FOLDERS]
    chance.shuffle(faults)
    await asyncio.sleep(5.0)  # what is made last at a start is known by then
    for name, damage in faults:
        with suppress(OSError):  # its folder may be a pipe by now
            damage(embedded.data / name)
        people.say()
        await asyncio.sleep(0.7)
    assert embedded.running.returncode is None
    await asyncio.sleep(75.0)  # a server looks at its pid file once a minute
    people.say()
    settled = await ledger.settled(90)
    judge(Fault.DELETED, await ledger.count(people.said, tries=len(faults)))
    assert settled
    assert (embedded.data / "health").is_file()
    assert (await embedded.command("status")).code == 0
    await embedded.terminate()
    await embedded.start()
    people.say()
    assert await ledger.settled(30)


async def there(path: Path) -> bool:
    return await asyncio.to_thread(path.is_file)


@pytest.mark.fault(Fault.DELETED)
async def test_the_health_file_and_the_log_are_made_again_whatever_replaced_them(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    process.configure(crowd(telegram, models))
    for damage in DAMAGES if FULL else (pipe,):
        (process.data / "starts").parent.mkdir(exist_ok=True)
        for name in ("health", "gateway.pid", "starts", "instance", "journal/checked"):
            (process.data / name).parent.mkdir(exist_ok=True)
            damage(process.data / name)
        await process.start()
        await until(partial(there, process.data / "health"))
        people, ledger = (
            Telegrammers(telegram, chance, numbers=chance.randrange(1000, 10**6)),
            Ledger(process, telegram),
        )
        pipe(process.workspace / "AGENTS.md")
        blanks(process.workspace / "USER.md")
        people.say(OWNER)
        assert await ledger.settled(30)
        await process.terminate()
        judge(Fault.DELETED, Outcome(tries=7))


@pytest.mark.fault(Fault.CONFIG_REPLACED)
async def test_a_configuration_that_is_no_file_is_told_once_and_holds_up_nobody(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    config = crowd(telegram, models)
    process.configure(config)
    await process.start()
    people, ledger = Telegrammers(telegram, chance, tools=0.0), Ledger(process, telegram)
    people.say(OWNER)
    assert await ledger.settled(30)
    before, slowest, grown = memory(process), 0.0, 0.0
    damages = DAMAGES if FULL else (pipe, zeros, blanks)
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        for number, damage in enumerate(damages, start=1):
            damage(process.home / "config.json")
            people.say()
            await until(lambda least=number: logged(process, "config.rejected", least))
            end = time.monotonic() + (11.0 if FULL else 0.5)
            while time.monotonic() < end:
                asked = time.perf_counter()
                assert (await client.get(f"{process.url}/health")).status_code == 200
                slowest = max(slowest, time.perf_counter() - asked)
                await asyncio.sleep(0.1)
            grown = max(grown, memory(process) - before)
            gone(process.home / "config.json")
            process.configure(config | {"owner": config["owner"] | {"name": f"Ada {number}"}})
            await until(lambda least=number: logged(process, "config.changed", least))
    settled = await ledger.settled(30)
    note = f"+{grown:.0f} MB, /health at most {slowest * 1000:.0f} ms"
    judge(Fault.CONFIG_REPLACED, await ledger.count(people.said, tries=len(damages)), note)
    assert settled
    assert grown < 20
    told = [sent.text for sent in telegram.sent if "The last good version is still in use." in sent.text]
    assert len([text for text in told if "is gone" not in text]) <= len(damages)


async def logged(process: GatewayProcess, event: str, least: int) -> bool:
    return sum(event in line for line in process.told) >= least


@pytest.mark.fault(Fault.SPARSE)
async def test_a_hostile_workspace_keeps_no_checkpoint_busy(process: GatewayProcess, judge: Judge) -> None:
    process.configure({"owner": {"name": "Ada"}})
    await process.start()
    for number in range(400):
        (process.workspace / f"{number}.img").touch()
        os.truncate(process.workspace / f"{number}.img", 64 * 2**20)
    os.mkfifo(process.workspace / "pipe")
    loop(process.workspace / "loop")
    (process.workspace / os.fsdecode(b"\xff\xfe.md")).write_text("x")
    (process.workspace / "large").write_bytes(os.urandom(2**20))
    for number in range(200):
        os.link(process.workspace / "large", process.workspace / f"link-{number}")
    deep = os.open(process.workspace, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    began = time.monotonic()
    made = await process.command("checkpoints", "create")
    judge(Fault.SPARSE, Outcome(), f"a checkpoint in {time.monotonic() - began:.1f} s")
    assert made.code == 0, made.told
    assert "400 mostly holes" in made.told
    assert "1 not a file" in made.told
    assert "1 too deep" in made.told


@pytest.mark.fault(Fault.DESCRIPTORS)
async def test_too_few_descriptors_are_told_with_the_number_needed(process: GatewayProcess, judge: Judge) -> None:
    process.under = ("prlimit", "--nofile=64:64")
    ended = await process.refused()
    judge(Fault.DESCRIPTORS, Outcome())
    assert ended.code not in (0, -9)
    [told] = ended.told.splitlines()
    assert told.startswith("supaclaw: at most 64 files may be open at once, and the gateway needs 128")


@pytest.mark.chaos
@pytest.mark.fault(Fault.DESCRIPTORS)
@pytest.mark.parametrize("limit", ["64:1024", "128:128"])
async def test_connections_that_take_all_descriptors_stop_nothing(
    embedded: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    limit: str,
) -> None:
    embedded.under = ("prlimit", f"--nofile={limit}")
    embedded.configure(crowd(telegram, models))
    await embedded.start()
    people, ledger = Telegrammers(telegram, chance), Ledger(embedded, telegram)
    port = int(embedded.url.rpartition(":")[2])
    with ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        await people.go_on(10.0)
        assert await ledger.settled(60)
    await people.go_on(2.0)
    settled = await ledger.settled(60)
    judge(Fault.DESCRIPTORS, await ledger.count(people.said), f"{limit}, 300 connections")
    assert settled
    async with embedded.http() as client:
        assert (await client.get("/health")).status_code == 200
