import asyncio
import json
import os
import pty
import re
import signal
import socket
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from gateway.cli.connections import local_gateway
from gateway.cli.connections.local_gateway import LocalGateway, ensure_gateway
from gateway.cli.conversation import chat
from gateway.cli.conversation.chat import ChatAnswer, ChatClient, Screen, completions
from gateway.cli.conversation.prompt import typed_messages
from gateway.config.data.instance import hold_instance, running_pid
from gateway.config.environment import Environment
from gateway.domain.conversation.model import ModelsExhausted, ToolCall
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from tests.web.conftest import LOCAL_TOKEN, Running, Web, running, web
from tests.web.scripted import Fails, Wait

__all__ = ["running", "web"]

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NO_QUESTIONS = {"PROMPT_TOOLKIT_NO_CPR": "1"}
"""Nobody here answers where the cursor is."""

CHAT = """
import sys
from gateway.cli.terminal.console import print_error
sys.excepthook = print_error
from gateway.cli.main import build
build()(["chat", *sys.argv[1:]], prog_name="supaclaw")
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a gateway that was started before."""
    keys = tmp_path / "data" / "keys"
    keys.mkdir(parents=True)
    (keys / "local-token").write_text(f"{LOCAL_TOKEN}\n")
    return tmp_path / "data"


@pytest.fixture
def held(data: Path) -> Iterator[Path]:
    """The same, while a gateway holds it."""
    with hold_instance(data):
        yield data


def place(web: Web, data: Path) -> LocalGateway:
    return LocalGateway(Environment.read({"SUPACLAW_DATA": str(data)}), web.url)


def surroundings(web: Web, data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SUPACLAW_")}
    return {**kept, "SUPACLAW_DATA": str(data), "SUPACLAW_PORT": str(web.port), "TERM": "xterm", **NO_QUESTIONS}


async def run(web: Web, data: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHAT,
        *arguments,
        env=surroundings(web, data),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin)
    return process.returncode or 0, out.decode(), err.decode()


class Terminal:
    """A person at a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, screen: int) -> None:
        self._process = process
        self._screen = screen
        self.shown = ""
        self._decoder = getincrementaldecoder("utf-8")()
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(screen, self._read)

    def _read(self) -> None:
        try:
            self.shown += self._decoder.decode(os.read(self._screen, 65536))
            self.shown = CONTROL.sub("", self.shown)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._screen)
        self._more.set()

    async def sees(self, text: str) -> None:
        async with asyncio.timeout(20):
            while text not in self.shown:
                self._more.clear()
                try:
                    await self._more.wait()
                except asyncio.CancelledError:
                    raise AssertionError(f"{text!r} is not in {self.shown!r}") from None

    async def is_asked(self) -> None:
        """Waits for the next prompt: a key pressed before it is not read as a key."""
        async with asyncio.timeout(20):
            while not self.shown.rstrip("\r\b ").endswith("›"):
                self._more.clear()
                await self._more.wait()

    def types(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def interrupts(self) -> None:
        self._process.send_signal(signal.SIGINT)

    async def leaves(self) -> int:
        async with asyncio.timeout(20):
            return await self._process.wait()


@asynccontextmanager
async def terminal(web: Web, data: Path, *arguments: str) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, 500))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHAT, *arguments, env=surroundings(web, data), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    person = Terminal(process, ours)
    try:
        yield person
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_one_message_prints_only_its_answer(web: Web, held: Path):
    web.model.says("Let me look.", ToolCall("c1", "list_files", '{"path": "."}'))
    web.model.says("Nothing there.")
    assert await run(web, held, "what is there?") == (0, "Nothing there.\n", "")


async def test_a_message_can_come_from_standard_input(web: Web, held: Path):
    assert await run(web, held, "-", stdin=b"from a file\nwith two lines\n") == (
        0,
        "re: from a file\nwith two lines\n",
        "",
    )
    assert (await run(web, held, stdin=b"piped"))[1] == "re: piped\n"


async def test_what_is_piped_in_comes_after_the_message(web: Web, held: Path):
    assert (await run(web, held, "review this:", stdin=b"+ a line\n"))[1] == "re: review this:\n\n+ a line\n"


async def test_a_message_may_begin_with_a_dash(web: Web, held: Path):
    assert (await run(web, held, "- milk\n- flour"))[1] == "re: - milk\n- flour\n"
    code, _, err = await run(web, held, "--fil", "x")
    assert (code, "No such option: --fil" in err) == (2, True)


async def test_a_command_answers_too(web: Web, held: Path):
    code, out, _ = await run(web, held, "/stop")
    assert (code, out) == (0, "Nothing is running.\n")


async def test_a_failed_turn_is_a_failed_command(web: Web, held: Path):
    web.model.says(ModelsExhausted("scripted: overloaded. Try later.", ()))
    assert await run(web, held, "hello") == (1, "", "supaclaw: scripted: overloaded. Try later.\n")


async def test_an_unknown_command_says_what_to_do(web: Web, held: Path):
    assert await run(web, held, "/nonsense") == (
        1,
        "",
        "supaclaw: not sent: unknown command; /help lists the commands\n",
    )


async def test_a_conversation_at_a_terminal(web: Web, held: Path):
    middle = Wait()
    web.model.says("I will look.", ToolCall("c1", "list_files", '{"path": "."}'))
    web.model.says("first half", middle, ", second half")
    async with terminal(web, held) as person:
        await person.is_asked()
        person.types("what is there?\r")
        await person.sees('I will look.\r\n· list_files {"path": "."}\r\nfirst half')
        middle.over.set()
        await person.sees("first half, second half\r\n")
        person.types("/nonsense\r")
        await person.sees("supaclaw: not sent: unknown command")
        person.types("/status\r")
        await person.sees("Model: scripted")
        await person.is_asked()
        person.types("\x04")
        assert await person.leaves() == 0
    history = held / "chat-history"
    assert "what is there?" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


async def test_interrupting_stops_the_answer_and_not_the_conversation(web: Web, held: Path):
    web.model.says("counting", Wait())
    async with terminal(web, held) as person:
        await person.is_asked()
        person.types("count\r")
        await person.sees("counting")
        person.interrupts()
        await person.sees("Stopped.")
        web.model.says("a fresh answer")
        person.types("hello\r")
        await person.sees("a fresh answer")
        person.types("/quit\r")
        assert await person.leaves() == 0


async def test_interrupting_twice_leaves_even_a_gateway_that_does_not_answer(running: Running, held: Path):
    started = await running.start()
    started.web.model.says("counting", Wait())
    async with terminal(started.web, held, "count") as person:
        await person.sees("counting")
        await started.stop()
        person.interrupts()
        await person.sees("Ctrl-C again exits")
        person.interrupts()
        assert await person.leaves() != 0


async def test_a_restart_in_the_middle_loses_nothing(running: Running, data: Path):
    first = await running.start()
    writing = Wait()
    first.web.model.says("half", writing)
    asking = asyncio.create_task(ChatClient(place(first.web, data)).ask("tell me"))
    await writing.reached.wait()
    await first.stop()
    second = await running.start(port=first.web.port, instance=first.web.path.instance)
    answer = await asking
    assert answer == ChatAnswer("re: tell me", failed=False)
    await second.stop()


async def test_the_events_go_on_after_a_restart(running: Running, data: Path):
    first = await running.start()
    events = ChatClient(place(first.web, data)).events()
    assert (await anext(events))["type"] == "snapshot"
    await first.stop()
    second = await running.start(port=first.web.port, instance=first.web.path.instance)
    assert (await anext(events))["type"] == "snapshot"
    await events.aclose()
    await second.stop()


async def test_a_gateway_that_never_comes_back_is_given_up(data: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat, "RETRY_SECONDS", 1.5)
    monkeypatch.setattr(chat, "PAUSE_SECONDS", 0.01)
    gone = LocalGateway(Environment.read({"SUPACLAW_DATA": str(data)}), "http://127.0.0.1:1")
    with pytest.raises(TryAgainLater, match="cannot be reached"):
        await ChatClient(gone).ask("hello")


async def test_what_cannot_be_sent_is_told_at_once(web: Web, data: Path):
    with pytest.raises(OwnerMustAct, match="text"):
        await ChatClient(place(web, data)).ask("x" * 2_000_001)


async def test_another_gateways_token_is_asked_for_again_and_given_up(
    web: Web, data: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chat, "RETRY_SECONDS", 3.0)
    monkeypatch.setattr(chat, "PAUSE_SECONDS", 1.0)
    (data / "keys" / "local-token").write_text("claw_of_another\n")
    with pytest.raises(TryAgainLater, match="No valid token"):
        await ChatClient(place(web, data)).ask("hello")


def test_the_screen_shows_a_turn_as_it_is_written(capsys: pytest.CaptureFixture[str]):
    screen = Screen(interactive=True)
    for event in (
        {"type": "snapshot", "written": None},
        {"type": "turn_started", "messages": [1]},
        {"type": "text", "text": "I th"},
        {"type": "text_dropped"},
        {"type": "waiting", "model": "openai/gpt-5", "error": "rate_limit", "seconds": 20.0},
        {"type": "text", "text": "Look:\n"},
        {"type": "tool_started", "name": "read_file", "arguments": json.dumps({"path": "x" * 200})},
        {"type": "text", "text": "It sa"},
        {"type": "snapshot", "written": "It says"},
    ):
        screen.show(event)
    screen.finish("It says no.")
    shown = capsys.readouterr()
    assert shown.out == "I th\nLook:\nIt says no.\n"
    assert shown.err.startswith("· openai/gpt-5 can't answer now, next try in 20 s\n")
    assert '· read_file {"path": "xxx' in shown.err
    assert shown.err.endswith("…\n")


def test_an_answer_that_came_out_differently_is_shown_whole(capsys: pytest.CaptureFixture[str]):
    screen = Screen(interactive=True)
    screen.show({"type": "text", "text": "Maybe"})
    screen.finish("No.")
    assert capsys.readouterr().out == "Maybe\nNo.\n"


@pytest.mark.parametrize("stored", ["Yes.", "Yes.\n"])
def test_blank_space_around_an_answer_does_not_show_it_twice(capsys: pytest.CaptureFixture[str], stored: str):
    screen = Screen(interactive=True)
    for text in ("\n\nYe", "s.\n"):
        screen.show({"type": "text", "text": text})
    screen.finish(stored)
    assert capsys.readouterr().out == "\n\nYes.\n"


def typed(text: str, history: Path) -> list[str]:
    """What the prompt yields for these keys; the last of them is Ctrl-D or Ctrl-C."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(text)
        return list(typed_messages(history, completions))


def test_messages_are_typed_and_pasted_in_several_lines(tmp_path: Path):
    history = tmp_path / "history"

    assert typed("  one \r\r\x04", history) == ["one"]
    assert typed("two\x1b\rlines\rand\\\rmore\r\x04", history) == ["two\nlines", "and\nmore"]
    assert typed("\x1b[200~pasted\nat once\r\n\x1b[201~\r\x04", history) == ["pasted\nat once"]
    assert typed("discarded\x03kept\r\x03", history) == ["kept"]
    assert history.stat().st_mode & 0o777 == 0o600
    assert "+pasted\n+at once" in history.read_text()


def test_a_prompt_without_a_place_for_its_history_works(tmp_path: Path):
    assert typed("one\r\x04", tmp_path / "missing" / "history") == ["one"]


def test_a_gateway_that_does_not_listen_is_named(held: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUPACLAW_DATA", str(held))
    monkeypatch.setenv("SUPACLAW_PORT", "1")
    monkeypatch.setattr(local_gateway, "LISTEN_SECONDS", 0.0)
    with pytest.raises(TryAgainLater, match=r"does not answer at http://127\.0\.0\.1:1"), ensure_gateway():
        pass


def test_a_gateway_that_starts_for_ever_is_named(held: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUPACLAW_DATA", str(held))
    monkeypatch.setenv("SUPACLAW_PORT", "1")
    monkeypatch.setattr(local_gateway, "START_SECONDS", 0.0)
    with pytest.raises(TryAgainLater, match=r"does not answer at http://127\.0\.0\.1:1"), ensure_gateway():
        pass


def test_a_gateway_of_our_own_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "config.json").write_text('{"nonsense": 7}')
    monkeypatch.setenv("SUPACLAW_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("SUPACLAW_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(local_gateway, "gateway_address", lambda _: "http://127.0.0.1:1")
    with pytest.raises(OwnerMustAct, match="the gateway did not start: "), ensure_gateway():
        pass


def test_without_a_gateway_one_is_started_and_stopped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name in [name for name in os.environ if name.startswith("SUPACLAW_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("SUPACLAW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SUPACLAW_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("SUPACLAW_PORT", str(port))
    with ensure_gateway() as found:
        assert running_pid(found.environment.data) is not None
        answer = asyncio.run(ChatClient(found).ask("/ping"))
    assert answer.text.startswith("pong")
    assert running_pid(found.environment.data) is None


async def test_a_retry_is_seen_at_the_terminal(web: Web, held: Path):
    web.model.says("I think", Fails(), "The answer.")
    async with terminal(web, held, "what?") as person:
        await person.sees("The answer.")
        assert await person.leaves() == 0


def test_what_a_terminal_would_obey_is_escaped_wherever_it_goes(capsys: pytest.CaptureFixture[str]):
    said = "one\x1b]52;c;cm0gLXJm\x07\ttwo\x9b2J\r\nthree"
    for interactive in (True, False):
        Screen(interactive=interactive).finish(said)
    Screen(interactive=True).note("\x1b[2Jnote")
    shown = capsys.readouterr()
    assert shown.out == "one\\x1b]52;c;cm0gLXJm\\x07\ttwo\\x9b2J\nthree\n" * 2
    assert shown.err == "\\x1b[2Jnote\n"
