"""`supaclaw chat`: the terminal channel, which shows an answer as it streams."""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import JsonValue

from gateway.cli.connections.local_gateway import ensure_gateway
from gateway.cli.conversation.attachments import PendingFiles
from gateway.cli.conversation.chat_client import ChatAnswer, ChatClient
from gateway.cli.terminal.console import Style, echo, show_after_a_second
from gateway.cli.terminal.output import argument, option
from gateway.domain.channels.routing import parse_command
from gateway.domain.errors import OwnerMustAct, SupaclawError

_MAX_ARGUMENTS = 100


@dataclass(slots=True)
class Screen:
    """Writes text to standard output as it arrives; it can only append."""

    interactive: bool
    _part: str = ""
    _thinking: ExitStack = field(default_factory=ExitStack)

    def wait(self) -> None:
        """Show that the answer is awaited, until its first word."""
        self._thinking.enter_context(show_after_a_second("thinking …"))

    def stop_waiting(self) -> None:
        """Stop showing that."""
        self._thinking.close()

    def show(self, event: Mapping[str, JsonValue]) -> None:
        """Show one event of the conversation."""
        match event:
            case {"type": "snapshot", "written": str(text)}:
                self._catch_up(text)
            case {"type": "text", "text": str(text)}:
                self._write(text)
            case {"type": "text_dropped"}:
                self._end_part()
            case {"type": "tool_started", "name": str(name), "arguments": str(arguments)}:
                self._end_part()
                self.note(f"· {name} {_short(arguments)}")
            case {"type": "waiting", "model": str(model), "seconds": int() | float() as seconds}:
                self.note(f"· {model} can't answer now, next try in {seconds:.0f} s")

    def finish(self, text: str) -> None:
        """Show the rest of the stored answer."""
        self._catch_up(text)
        self._end_part()

    def _catch_up(self, text: str) -> None:
        """Write the rest of the text. Models put blank space around an answer, which isn't stored."""
        text, shown = text.lstrip(), self._part.lstrip()
        if text.rstrip() == shown.rstrip():
            return
        if not text.startswith(shown):
            self._end_part()
            shown = ""
        self._write(text[len(shown) :])

    def _write(self, text: str) -> None:
        self.stop_waiting()
        self._part += text
        echo(text.replace("\r", ""), end="")

    def _end_part(self) -> None:
        if self._part and not self._part.endswith("\n"):
            echo()
        self._part = ""

    def note(self, text: str) -> None:
        """Print a note that is not part of the answer."""
        self.stop_waiting()
        echo(lead=text, style=Style.DIM, error=True)


def _short(arguments: str) -> str:
    line = " ".join(arguments.split())
    return line if len(line) <= _MAX_ARGUMENTS else f"{line[:_MAX_ARGUMENTS]}…"


QUIT_COMMANDS = frozenset({"/quit", "/exit"})


def chat(
    text: Annotated[str | None, argument("One message; piped input is added to it, - stands for it.", "TEXT")] = None,
    files: Annotated[list[Path] | None, option("A file to attach; repeatable.", "PATH", "--file", "-f")] = None,
) -> None:
    """Talk to your agent. With TEXT or a file, print its answer and exit."""
    pending = PendingFiles()
    pending.add(files or ())
    message = _message(text, files=bool(files))
    with ensure_gateway() as gateway, asyncio.Runner() as runner:
        if message is not None:
            screen = Screen(interactive=sys.stdout.isatty())
            answer = runner.run(_turn(ChatClient(gateway), screen, message, pending.take()))
            if answer.failed:
                raise OwnerMustAct(answer.text)
        else:
            _converse(runner, ChatClient(gateway), gateway.environment.data / "chat-history")


def _message(text: str | None, *, files: bool) -> str | None:
    """The message of this command; None to prompt for messages.

    With a text or a file, standard input is only read if it is a pipe or a file: that of a service never ends.
    """
    if text == "-" or (text is None and not files and not sys.stdin.isatty()):
        return sys.stdin.read()
    piped, mode = "", os.fstat(sys.stdin.fileno()).st_mode if sys.stdin else 0
    if stat.S_ISFIFO(mode) or stat.S_ISREG(mode):
        with show_after_a_second("reading standard input; Ctrl-D ends it …"):
            piped = sys.stdin.read()
    return "\n\n".join(filter(None, (text, piped))) or ("" if files else text)


def _converse(runner: asyncio.Runner, client: ChatClient, history: Path) -> None:
    """Run turns until Ctrl-D; an error with one message does not end the session."""
    from gateway.cli.conversation.prompt import typed_messages

    keys = "Ctrl-C stops an answer, Ctrl-D exits, Alt-Enter begins a new line"
    echo(f"{keys}; /help lists the commands, /attach PATH adds a file.", error=True)
    pending = PendingFiles()
    for text in typed_messages(history):
        if text in QUIT_COMMANDS:
            return
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            try:
                if not pending.handle(text):
                    files = () if parse_command(text)[0] else pending.take()
                    runner.run(_turn(client, Screen(interactive=True), text, files))
            except SupaclawError as exc:
                echo(f"supaclaw: {exc}", error=True)


async def _turn(client: ChatClient, screen: Screen, text: str, files: Sequence[Path]) -> ChatAnswer:
    """Send a message and show the answer as it streams. The first Ctrl-C stops the answer, the second one exits."""
    loop, waiting = asyncio.get_running_loop(), asyncio.current_task()
    assert waiting is not None, "this runs in a task"
    stops: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if stops:
            waiting.cancel()
        else:
            screen.note("\nStopping; Ctrl-C again exits.")
            stops.append(loop.create_task(client.stop()))

    loop.add_signal_handler(signal.SIGINT, interrupted)
    screen.wait()
    watching = loop.create_task(_watch(client, screen)) if screen.interactive else None
    try:
        answer = await client.ask(text, files)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        tasks = [*stops, *([watching] if watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        screen.stop_waiting()
    if not answer.failed or screen.interactive:
        screen.finish(answer.text)
    for file in answer.files:
        screen.note(f"· {file['path'] or file['name']} · supaclaw files get {file['id']}")
    return answer


async def _watch(client: ChatClient, screen: Screen) -> None:
    async for event in client.events():
        screen.show(event)
