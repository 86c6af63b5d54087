import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.main import COMMANDS, OLD, Group
from tests.cli.conftest import Supaclaw

GROUPS = {"": tuple(COMMANDS)} | {
    name: tuple(filter(None, entry.targets)) for name, entry in COMMANDS.items() if isinstance(entry, Group)
}


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_explains_itself_in_a_line(supaclaw: Supaclaw, group: str) -> None:
    listed = {line.split()[0]: line for line in supaclaw(*group.split(), "--help").out.splitlines() if line.strip()}
    assert not {f"{group} {command}".strip() for command in listed} & OLD
    for command in GROUPS[group]:
        if f"{group} {command}".strip() in OLD:
            continue
        done = supaclaw(*group.split(), command, "--help")
        assert done.code == 0
        assert len(listed[command].split()) > 2
        assert not listed[command].endswith("...")
        assert done.out.startswith(f"Usage: supaclaw {group} {command}".replace("  ", " "))


def test_without_a_command_help_is_shown(supaclaw: Supaclaw) -> None:
    done = supaclaw()

    assert done.code == 2
    assert "Usage: supaclaw" in done.out + done.err


def test_a_command_that_does_not_exist_is_a_usage_error(supaclaw: Supaclaw) -> None:
    done = supaclaw("dance")

    assert done.code == 2
    assert "No such command 'dance'" in done.err


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("statsu",), "No such command 'statsu'. Did you mean 'status'?"),
        (("logs", "--day", "2026-13-01"), "Invalid value for '--day': must be a day like 2026-03-01"),
        (("memories", "show", "x"), "Invalid value for 'ID': must be a whole number"),
        (("search", "x", "--session", "x"), "Invalid value for '--session': must be a complete id"),
        (("token", "create", "", "--scope", "chat"), "Invalid value for 'NAME': must not be empty"),
        (("token", "revoke", ""), "Invalid value for 'NAME': must not be empty"),
        (("tasks", "create", " "), "Invalid value for 'TEXT': must not be empty"),
        (("files", "vouch", "a.md", ""), "Invalid value for 'PATH': must not be empty"),
        (("restore", "nope"), "Invalid value for 'FILE': file 'nope' does not exist."),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_wrong_value_is_refused_in_plain_words(supaclaw: Supaclaw, call: tuple[str, ...], told: str) -> None:
    done = supaclaw(*call)

    assert (done.code, done.err.splitlines()[-1]) == (2, f"Error: {told}")


def test_an_empty_setting_is_for_its_key_to_judge(supaclaw: Supaclaw) -> None:
    assert "owner.name: must not be empty" in supaclaw("config", "set", "owner.name", "").err


def test_commands_are_listed_under_headings(supaclaw: Supaclaw) -> None:
    lines = supaclaw("--help").out.split("\nTalk:\n")[1].splitlines()

    headings = [line for line in ["Talk:", *lines] if line.endswith(":")]
    assert headings == ["Talk:", "Run:", "Work:", "Remember:", "People:", "Data:", "Advanced:"]
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [
        name for name in COMMANDS if name not in OLD
    ]
    assert lines[0].split()[0] == "chat"


def test_old_names_are_understood_and_not_listed(supaclaw: Supaclaw) -> None:
    assert "  reject" not in supaclaw("approvals", "--help").out
    assert "deny" in supaclaw("reviews", "--help").out
    assert "install " in supaclaw("openclaw", "--help").out
    assert supaclaw("approvals", "reject", "--help").code == 0


def test_version_is_the_installed_one(supaclaw: Supaclaw) -> None:
    assert supaclaw("version").out.count(".") == 2


def module(place: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


START = """
import gc, os, sys
from importlib import import_module
from pkgutil import iter_modules
sys.argv = ["supaclaw", "up"]
from gateway.__main__ import main
try:
    main()
except Exception as refused:
    assert "SUPACLAW_PORT" in str(refused)
for package in "gateway.tools", "gateway.commands", "gateway.background.jobs":
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
late = {"typer", "rich", "markdown_it", "aiogram", "uvicorn", "fastapi", "litellm", "openai", "httpx"}
print(late & sys.modules.keys(), gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


def test_a_start_neither_imports_what_is_needed_later_nor_collects_garbage_meanwhile(place: Path) -> None:
    """With its tools, commands and jobs, up to the first word of config.json; in a process of its own."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "SUPACLAW_PORT": "x"}
    done = subprocess.run(
        [sys.executable, "-c", START], cwd=place, env=environ, capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("set() True True\n", "")


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
