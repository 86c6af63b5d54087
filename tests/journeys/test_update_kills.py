"""kill -9 of `supaclaw update` before and during each of its acts: a version answers, and nothing said is lost.

Two processes do an update: the command, and the one that switches, in a session of its own.
"""

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from gateway.config.data.instance import running_pid
from tests.conftest import one_of_a_class
from tests.fakes.telegram import FakeTelegram
from tests.journeys.test_update import CURRENT, NEWER, RUNS, SPOILS, Installed, answered, home, installed, served

pytestmark = pytest.mark.thorough

__all__ = ["home", "installed", "served"]

SWITCHES = """
import os, signal, sys, threading
from pathlib import Path

from gateway.app.installation import Version, find_installation
from gateway.cli.process import update
from gateway.config.environment import Environment

name, number, victims, killed = sys.argv[1:]
command, seen = os.getpid(), 0


def kill():
    Path(killed).write_text(str(os.getpid()))
    for victim in {"both": (command, os.getpid()), "command": (command,), "switch": (os.getpid(),)}[victims]:
        os.kill(victim, signal.SIGKILL)


def act(event, arguments):
    global seen
    if os.getpid() != command and event in ("subprocess.Popen", "os.rename", "os.symlink", "shutil.rmtree"):
        seen += 1
        if number == f"{seen}":
            kill()
        if number == f"{seen}+":
            threading.Timer(0.3, kill).start()


sys.addaudithook(act)
update._Switch(find_installation(), Version(name, ""), Environment.read(os.environ), "").run()
"""
"""The last part of `supaclaw update`; what comes before changes nothing. Kills the victims before an act of the process
that switches, or with a + soon after the act began."""
ACCEPTS = """
insert into supaclaw.inbox
(principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, handled_at)
select principal_id, address_id, channel, account, chat, 'accepted', kind, platform_time, now() from supaclaw.inbox
on conflict do nothing
"""
TAKES = SPOILS.replace("\n\nasyncio.run", f"\n        await conn.execute({ACCEPTS!r})\n\nasyncio.run")
"""Changes the schema, accepts a message, and breaks."""
ACTS = 13
"""The link to 2, the stop at 3, the look at the server to 6, the copy to 9, the start at 10, the copy deleted to 13."""
ACTS_BACK = 21
"""The same with a version that doesn't start: the stop from 11, the link to 17, the decision at 19, the start at 21."""
DECIDED = 20
"""If everything is killed earlier, only the version that doesn't start is there: docs/backup.md says what to do."""
QUICK = {("3+", "command"), ("8+", "switch"), ("10", "both")}
QUICK_BACK = {("19", "switch"), ("20", "both")}


def places(acts: range, victims: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(f"{number}{when}", each) for number in acts for when in ("", "+") for each in victims]


def lay_out_newer(installed: Installed, spoils: str = "") -> Path:
    """The newer version beside the one in use; returns its Python."""
    place = installed.home / ".local" / "lib" / "supaclaw" / NEWER
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    program = next((place / "lib").iterdir()) / "site-packages" / "gateway"
    program.mkdir()
    (program / "__main__.py").write_text(RUNS.format(broken=None, spoils=repr(spoils)))
    return place / "bin" / "python"


PLACES = places(range(1, ACTS + 1), ("switch", "command", "both"))
PLACES_BACK = [
    *places(range(11, ACTS_BACK + 1), ("switch", "command")),
    *places(range(DECIDED, ACTS_BACK + 1), ("both",)),
]


async def switch(installed: Installed, place: str = "", victims: str = "switch") -> str:
    """Update, with a kill at this place; return its words once the programs that the victims had started have ended."""
    mark = installed.home / "killed"
    arguments = "-P", "-c", SWITCHES, NEWER, place, victims, str(mark)
    switching = await asyncio.create_subprocess_exec(installed.python, *arguments, env=installed.environ, stderr=PIPE)
    _, said = await switching.communicate()
    assert mark.exists() == bool(place), "it came there, if there was a place"
    with suppress(ProcessLookupError):
        while place:
            os.killpg(int(mark.read_text()), 0)
            await asyncio.sleep(0.05)
    return said.decode()


@asynccontextmanager
async def started_by_somebody(installed: Installed, newer: Path) -> AsyncIterator[None]:
    """Start the gateway again, as a person or the next boot does after every process was killed."""

    async def start() -> None:
        while True:
            if running_pid(installed.gateway.data) is None:
                python = newer if installed.in_use == NEWER else installed.python
                up = await asyncio.create_subprocess_exec(
                    python, "-P", "-m", "gateway", "up", env=installed.environ, stdout=DEVNULL, stderr=DEVNULL
                )
                await up.wait()
            await asyncio.sleep(0.1)

    starting = asyncio.create_task(start())
    yield
    starting.cancel()


@pytest.mark.parametrize(("place", "victims"), one_of_a_class(PLACES, QUICK))
async def test_an_update_that_is_killed_leaves_a_version_that_answers(
    installed: Installed, telegram: FakeTelegram, place: str, victims: str
) -> None:
    newer = lay_out_newer(installed)
    await answered(telegram, 1)
    await switch(installed, place, victims)
    async with started_by_somebody(installed, newer) if victims == "both" else nullcontext():
        await answered(telegram, 2)

    [told] = await installed.gateway.rows("select count(*) from messages where kind = 'assistant' and final")
    assert told["count"] == 2
    if victims != "both":
        assert installed.in_use == NEWER
        assert not (installed.gateway.data / "postgres.before").exists()


@pytest.mark.parametrize(("place", "victims"), one_of_a_class(PLACES_BACK, QUICK_BACK))
async def test_one_that_is_killed_while_it_goes_back_does_go_back(
    installed: Installed, telegram: FakeTelegram, place: str, victims: str
) -> None:
    newer = lay_out_newer(installed, SPOILS)
    await answered(telegram, 1)
    await switch(installed, place, victims)
    async with started_by_somebody(installed, newer) if victims == "both" else nullcontext():
        await answered(telegram, 2)

    assert installed.in_use == CURRENT
    [told] = await installed.gateway.rows("select count(*) from messages where kind = 'assistant' and final")
    assert told["count"] == 2


async def test_a_database_that_has_accepted_a_message_is_not_replaced(
    installed: Installed, telegram: FakeTelegram
) -> None:
    lay_out_newer(installed, TAKES)
    await answered(telegram, 1)

    said = await switch(installed)

    assert "its database can't be read by the version before, so it stays in use" in said
    assert installed.in_use == NEWER
    [kept] = await installed.gateway.rows("select count(*) from inbox where platform_id = 'accepted'")
    assert kept["count"] == 1


async def test_after_it_has_accepted_a_message_the_program_alone_goes_back_if_it_can_work_on_the_schema(
    installed: Installed, telegram: FakeTelegram
) -> None:
    only_adds = TAKES.replace("'later', '', {next_one} from", "'later', '', 0 from")
    assert only_adds != TAKES
    lay_out_newer(installed, only_adds)
    await answered(telegram, 1)

    said = await switch(installed)

    assert "the version before runs again" in said
    assert installed.in_use == CURRENT
    [kept] = await installed.gateway.rows("select count(*) from inbox where platform_id = 'accepted'")
    assert kept["count"] == 1
    await answered(telegram, 2)
