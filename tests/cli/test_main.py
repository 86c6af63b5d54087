import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.main import COMMANDS, Group
from tests.cli.conftest import Supaclaw

CALLS = [
    (name, command) if command else (name,)
    for name, entry in COMMANDS.items()
    for command in (entry.commands if isinstance(entry, Group) else ("",))
]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_every_command_explains_itself_in_a_line(supaclaw: Supaclaw, call: tuple[str, ...]) -> None:
    parent = supaclaw(*call[:-1], "--help")
    done = supaclaw(*call, "--help")

    line = next(line for line in parent.out.splitlines() if line.split()[:1] == [call[-1]])
    assert done.code == 0
    assert len(line.split()) > 2
    assert not line.endswith("...")
    assert done.out.startswith(f"Usage: supaclaw {' '.join(call)}")


def test_without_a_command_help_is_shown(supaclaw: Supaclaw) -> None:
    done = supaclaw()

    assert done.code == 2
    assert "Usage: supaclaw" in done.out + done.err


def test_a_command_that_does_not_exist_is_a_usage_error(supaclaw: Supaclaw) -> None:
    done = supaclaw("dance")

    assert done.code == 2
    assert "No such command 'dance'" in done.err


def test_version_is_the_installed_one(supaclaw: Supaclaw) -> None:
    assert supaclaw("version").out.count(".") == 2


def test_starting_loads_no_command_line_parser() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, gateway.cli.process.start, gateway.__main__; print('typer' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert loaded.stdout == "False\n"


def module(place: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_error_is_one_line_and_an_exit_code(place: Path) -> None:
    done = module(place, "up", SUPACLAW_PORT="x")

    assert done.returncode == 1
    assert done.stderr == "supaclaw: SUPACLAW_PORT: web.port: must be a whole number\n"
    assert done.stdout == ""


def test_a_traceback_is_there_for_who_asks(place: Path) -> None:
    done = module(place, "config", "validate", SUPACLAW_PORT="x", SUPACLAW_DEBUG="1")

    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_help_imports_no_command() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, gateway.cli.main as m\n"
            "from typer.testing import CliRunner\n"
            "assert 'Print the version' in CliRunner().invoke(m.build(), ['--help']).stdout\n"
            "heavy = 'gateway.cli.process.', 'gateway.config', 'rich.table', 'asyncpg', 'asyncio'\n"
            "print([name for name in sys.modules if name.startswith(heavy)])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert loaded.stdout == "[]\n"
