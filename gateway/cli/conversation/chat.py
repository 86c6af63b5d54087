"""`supaclaw chat`: the terminal channel."""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.conversation.attach import PendingFiles
from gateway.cli.conversation.chat_client import ChatAnswer, ChatClient
from gateway.cli.conversation.local_gateway import ensure_gateway
from gateway.cli.conversation.screen import Screen
from gateway.cli.progress import slow
from gateway.domain.channels.routing import parse_command
from gateway.domain.errors import OwnerMustAct, SupaclawError

QUIT_COMMANDS = frozenset({"/quit", "/exit"})


def chat(
    text: Annotated[
        str | None, typer.Argument(help="One message; piped input is added to it. - reads the message from there.")
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", metavar="PATH", help="A file to attach; repeatable.")
    ] = None,
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
    """The message of this command, None to ask for messages.

    Beside a text or a file only a pipe or a file is read: nobody ends the standard input of a service.
    """
    if text == "-" or (text is None and not files and not sys.stdin.isatty()):
        return sys.stdin.read()
    piped, mode = "", os.fstat(sys.stdin.fileno()).st_mode if sys.stdin else 0
    if stat.S_ISFIFO(mode) or stat.S_ISREG(mode):
        with slow("reading standard input; Ctrl-D ends it …"):
            piped = sys.stdin.read()
    return "\n\n".join(filter(None, (text, piped))) or ("" if files else text)


def _converse(runner: asyncio.Runner, client: ChatClient, history: Path) -> None:
    """Run turns until Ctrl-D; an error with one message does not end the session."""
    from gateway.cli.conversation.prompt import Prompt

    keys = "Ctrl-C stops an answer, Ctrl-D exits, Alt-Enter begins a new line"
    echo(f"{keys}; /help lists the commands, /attach PATH adds a file.", error=True)
    pending = PendingFiles()
    for text in Prompt(history).messages():
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
