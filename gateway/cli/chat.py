"""`supaclaw chat`: the terminal channel."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.attach import Tray
from gateway.cli.companion import gateway_at_hand
from gateway.cli.line import Answered, Line
from gateway.cli.prompt import Prompt
from gateway.cli.screen import Screen
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.domain.routing import parse_command

LEAVE = frozenset({"/quit", "/exit"})


def chat(
    text: Annotated[str | None, typer.Argument(help="One message; - reads it from standard input.")] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", metavar="PATH", help="A file to send with it; one option each.")
    ] = None,
) -> None:
    """Talk to your agent. With TEXT or a file, print its answer and leave."""
    tray = Tray()
    tray.add(files or ())
    piped = text is None and not files and not sys.stdin.isatty()
    said = sys.stdin.read() if text == "-" or piped else text or ("" if files else None)
    with gateway_at_hand() as place, asyncio.Runner() as runner:
        if said is not None:
            answer = runner.run(_turn(Line(place), Screen(watched=sys.stdout.isatty()), said, tray.emptied()))
            if answer.failed:
                raise OwnerMustAct(answer.text)
        else:
            _converse(runner, Line(place), Prompt(place.data / "chat-history"))


def _converse(runner: asyncio.Runner, line: Line, prompt: Prompt) -> None:
    """Turn after turn, until Ctrl-D; what goes wrong with one message does not end it."""
    print("Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands, /attach PATH adds a file.", file=sys.stderr)
    tray = Tray()
    for text in prompt.lines():
        if text in LEAVE:
            return
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            try:
                if not tray.heeds(text):
                    files = () if parse_command(text)[0] else tray.emptied()
                    runner.run(_turn(line, Screen(watched=True), text, files))
            except SupaclawError as exc:
                print(f"supaclaw: {exc}", file=sys.stderr)


async def _turn(line: Line, screen: Screen, text: str, files: Sequence[Path]) -> Answered:
    """Send it and show the answer as it is written. The first Ctrl-C stops the answer, the second one leaves."""
    loop, waiting = asyncio.get_running_loop(), asyncio.current_task()
    assert waiting is not None, "this runs in a task"
    stops: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if stops:
            waiting.cancel()
        else:
            screen.aside("\nStopping; Ctrl-C again leaves.")
            stops.append(loop.create_task(line.stop()))

    loop.add_signal_handler(signal.SIGINT, interrupted)
    watching = loop.create_task(_watch(line, screen)) if screen.watched else None
    try:
        answer = await line.ask(text, files)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        tasks = [*stops, *([watching] if watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not answer.failed or screen.watched:
        screen.finish(answer.text)
    for file in answer.files:
        screen.aside(f"· {file['path'] or file['name']} · supaclaw files get {file['id']}")
    return answer


async def _watch(line: Line, screen: Screen) -> None:
    async for event in line.events():
        screen.show(event)
