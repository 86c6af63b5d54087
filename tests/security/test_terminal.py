"""Finding 12: nothing that a model, a sender, a file or an error says can act on the terminal."""

import ast
import io
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from gateway.cli.conversation.chat import Screen
from gateway.cli.terminal.console import Style, copy_out, echo, print_error, print_traceback, redraw, show_progress
from gateway.cli.terminal.output import confirm, print_json, print_rows
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import printable
from gateway.logs import SecretMask, logging_to
from gateway.logs.files import line_renderer

ROOT = Path(__file__).parents[2]
PRINTING = sorted(path for top in ("gateway/cli", "integrations") for path in (ROOT / top).rglob("*.py"))
EVIL = "a\x1b]52;c;cm0gLXJm\x07b\x9b2Jc\x7fd\r\u202egpj.\u2066exe\u2069\u200fe\U000e0041f\u2028g\udc80[red]h[/red]"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def is_tame(text: str) -> bool:
    unseen = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    return all(unicodedata.category(char) not in unseen for char in text.replace("\n", ""))


@dataclass(frozen=True, slots=True)
class Row:
    name: str


WAYS: dict[str, Callable[[], object]] = {
    "message": lambda: echo(EVIL),
    "lead": lambda: echo(EVIL, lead=EVIL, style=Style.RED, error=True),
    "table": lambda: print_rows([Row(EVIL)], ("name",), as_json=False),
    "json rows": lambda: print_rows([Row(EVIL)], ("name",), as_json=True),
    "json": lambda: print_json({EVIL: [EVIL]}),
    "error": lambda: print_error(OwnerMustAct, OwnerMustAct(EVIL), None),
    "defect": lambda: print_error(KeyError, ValueError(EVIL), None),
    "traceback": lambda: print_traceback(KeyError, ValueError(EVIL), None),
    "answer": lambda: Screen(interactive=True).finish(EVIL),
    "piped answer": lambda: Screen(interactive=False).finish(EVIL),
    "streamed": lambda: Screen(interactive=True).show({"type": "text", "text": EVIL}),
    "tool": lambda: Screen(interactive=True).show({"type": "tool_started", "name": EVIL, "arguments": EVIL}),
    "progress": lambda: show_progress(EVIL),
    "picture": lambda: redraw(EVIL),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_foreign_acts_on_the_terminal(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    WAYS[way]()

    shown = capsys.readouterr()
    assert is_tame(shown.out + shown.err)


@pytest.mark.parametrize("way", ["message", "table", "error", "answer"])
def test_markup_in_foreign_text_is_only_text(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    WAYS[way]()

    shown = capsys.readouterr()
    assert "[red]h[/red]" in shown.out + shown.err


def test_json_keeps_what_it_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": EVIL, "other": "Zoë"})

    assert json.loads(capsys.readouterr().out)["name"] == EVIL


def test_json_without_such_characters_stays_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "Zoë 👩‍🚀"})

    assert "Zoë 👩‍🚀" in capsys.readouterr().out


def test_a_line_of_the_log_is_tame_in_its_names_too() -> None:
    assert is_tame(line_renderer(io.StringIO())({"event": EVIL, EVIL: EVIL, "nested": {EVIL: [EVIL]}}))


def test_our_own_style_still_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    echo(f"text {EVIL}", lead="warn", style=Style.YELLOW)

    assert sys.stdout.getvalue() == f"\x1b[33mwarn\x1b[0mtext {printable(EVIL)}\n"


def test_a_file_is_text_on_a_terminal_and_its_bytes_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    raw = b"one\x1b[2J\xff\ntwo\n"
    copy_out(io.BytesIO(raw))
    assert capsysbinary.readouterr().out == raw

    monkeypatch.setattr(sys, "stdout", Terminal())
    copy_out(io.BytesIO(raw))
    assert sys.stdout.getvalue() == "one\\x1b[2J\\xff\ntwo\n"


def test_a_question_is_tame(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    confirm(f"Restore {EVIL}?")

    assert is_tame(capsys.readouterr().out)


@pytest.mark.parametrize("debug", ["", "1"])
def test_the_process_ends_without_acting_on_the_terminal(tmp_path: Path, debug: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"models": {"a\x1b[2J\u202eb": 1}}))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "SUPACLAW_DEBUG": debug}
    command = [sys.executable, "-m", "gateway", "config", "validate"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "\\x1b[2J\\u202eb" in done.stderr
    assert is_tame(done.stderr)


# By structure: the command line prints through `console` alone; tables are in `output`, questions in `questions`.

TERMINAL = {"stdout", "stderr", "__stdout__", "__stderr__"}
CLICK = {"echo", "secho", "echo_via_pager", "confirm", "prompt", "style", "progressbar", "get_text_stream"}
MAY = {
    "console.py": {"print", "rich", "sys"},
    "output.py": {"rich", "sys", "typer"},  # `sys`: whether answers are typed
    "logs.py": {"log line", "sys"},  # `readable` is told whether it is a terminal
    "mcp_serve.py": {"sys"},  # a program reads it
    "prompt.py": {"input"},
}


def breaches(tree: ast.AST) -> Iterator[str]:
    """What prints, or could."""
    asked = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "isatty"}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id="print" | "input" as name):
                yield name
            case ast.Name(id="echo_log_line"):
                yield "log line"
            case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name in TERMINAL and id(node) not in asked:
                yield "sys"
            case ast.Attribute(value=ast.Name(id="os"), attr="write" | "system"):
                yield "os"
            case ast.Attribute(value=ast.Name(id="typer"), attr=name) if name in CLICK:
                yield "typer"
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.partition(".")[0] in {"rich", "click"})
            case ast.ImportFrom(module=str(module), names=names):
                root, imported = module.partition(".")[0], {name.name for name in names}
                if (
                    root in {"rich", "click"}
                    or (root == "typer" and imported & CLICK)
                    or (root == "sys" and imported & TERMINAL)
                ):
                    yield root


@pytest.mark.parametrize("file", PRINTING, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_command_line_has_one_way_to_print(file: Path) -> None:
    assert set(breaches(ast.parse(file.read_text()))) <= MAY.get(file.name, set())


@pytest.mark.parametrize(
    "code",
    [
        "print('x')",
        "f = print",
        "import sys\nsys.stdout.write('x')",
        "from sys import stderr",
        "import typer\ntyper.echo('x')",
        "from typer import secho",
        "from rich.console import Console",
        "import rich",
        "import os\nos.write(1, b'x')",
        "input('x')",
    ],
)
def test_another_way_would_be_found(code: str) -> None:
    assert set(breaches(ast.parse(code)))


def test_asking_whether_it_is_a_terminal_is_no_printing() -> None:
    assert not set(breaches(ast.parse("import sys\nsys.stdout.isatty()")))


def test_a_log_file_is_safe_to_look_at(tmp_path: Path) -> None:
    with logging_to(tmp_path, SecretMask(), io.StringIO()):
        structlog.get_logger().warning(EVIL, fact=EVIL, name="Zoë")
        structlog.get_logger().warning("plain", name="Zoë")
    [evil, plain] = next(tmp_path.glob("gateway-*.log")).read_text().splitlines()
    assert is_tame(evil)
    assert json.loads(evil)["fact"] == EVIL
    assert '"Zoë"' in plain
