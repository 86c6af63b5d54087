"""kill -9 of `supaclaw update` before and during each of its acts: a version answers, and nothing said is lost.

Two processes do an update: the command, and the one that switches, in a session of its own.
"""

import asyncio
import subprocess
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import pytest

from gateway.config.data.instance import running_pid
from tests.conftest import one_of_a_class
from tests.fakes.telegram import FakeTelegram
from tests.journeys.test_update import CURRENT, NEWER, RUNS, SPOILS, Installed, answered, home, installed, served

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
    Path(killed).touch()
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
ACTS = 14
"""The link to 2, the stop at 3, the server looked into to 6, the copy to 9, the start at 10, the copy deleted to 14."""
ACTS_BACK = 26
"""The same after a version that does not start: the stop from 11, the decision to 21, the start at 24."""
QUICK = {("8+", "switch"), ("3+", "command"), ("10", "both"), ("10+", "switch")}
QUICK_BACK = {("19", "switch"), ("20", "both")}


def places(acts: range, quick: set[tuple[str, str]]) -> list[object]:
    every = [f"{number}{when}" for number in acts for when in ("", "+")]
    return one_of_a_class(((place, who) for place in every for who in ("switch", "command", "both")), quick)


def lay_out_newer(installed: Installed, spoils: str = "") -> Path:
    """The newer version beside the one in use; returns its Python."""
    place = installed.home / ".local" / "lib" / "supaclaw" / NEWER
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    program = next((place / "lib").iterdir()) / "site-packages" / "gateway"
    program.mkdir()
    (program / "__main__.py").write_text(RUNS.format(broken=None, spoils=repr(spoils)))
    return place / "bin" / "python"


async def killed(installed: Installed, place: str, victims: str) -> None:
    """Returns when every process that was not killed has ended."""
    mark = installed.home / "killed"
    arguments = "-P", "-c", SWITCHES, NEWER, place, victims, str(mark)
    switching = await asyncio.create_subprocess_exec(
        installed.python, *arguments, env=installed.environ, stdout=asyncio.subprocess.PIPE
    )
    await switching.communicate()
    assert mark.exists(), "it never came there"


async def start_again(installed: Installed, newer: Path) -> None:
    """What a person, or the machine's next boot, does after every process was killed."""
    if running_pid(installed.gateway.data) is None:
        python = newer if installed.in_use == NEWER else installed.python
        arguments = "-P", "-m", "gateway", "up"
        await asyncio.create_subprocess_exec(
            python, *arguments, env=installed.environ, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )


@pytest.mark.parametrize(("place", "victims"), places(range(1, ACTS + 1), QUICK))
async def test_an_update_that_is_killed_leaves_a_version_that_answers(
    installed: Installed, telegram: FakeTelegram, place: str, victims: str
) -> None:
    newer = lay_out_newer(installed)
    await answered(telegram, 1)
    await killed(installed, place, victims)
    if victims == "both":
        await start_again(installed, newer)
    await answered(telegram, 2)

    [told] = await installed.gateway.rows("select count(*) from messages where kind = 'assistant' and final")
    assert told["count"] == 2
    if victims != "both":
        assert installed.in_use == NEWER
        assert not (installed.gateway.data / "postgres.before").exists()


@pytest.mark.parametrize(("place", "victims"), places(range(11, ACTS_BACK + 1), QUICK_BACK))
async def test_one_that_is_killed_while_it_goes_back_does_go_back(
    installed: Installed, telegram: FakeTelegram, place: str, victims: str
) -> None:
    lay_out_newer(installed, SPOILS)
    await answered(telegram, 1)
    await killed(installed, place, victims)
    if victims == "both":
        await start_again(installed, installed.python)
    await answered(telegram, 2)

    assert victims == "both" or installed.in_use == CURRENT
    [told] = await installed.gateway.rows("select count(*) from messages where kind = 'assistant' and final")
    assert told["count"] == 2
