"""`supaclaw chat`: the terminal channel."""

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer

from gateway.cli.companion import gateway_at_hand
from gateway.cli.line import Answered, Line
from gateway.cli.prompt import Prompt
from gateway.cli.screen import Screen
from gateway.domain.errors import OwnerMustAct, SupaclawError

LEAVE = frozenset({"/quit", "/exit"})


def chat(
    text: Annotated[str | None, typer.Argument(help="One message; - reads it from standard input.")] = None,
) -> None:
    """Talk to your agent. With TEXT, print its answer and leave."""
    said = sys.stdin.read() if text == "-" or (text is None and not sys.stdin.isatty()) else text
    with gateway_at_hand() as place, asyncio.Runner() as runner:
        if said is not None:
            answer = runner.run(_turn(Line(place), Screen(watched=sys.stdout.isatty()), said))
            if answer.failed:
                raise OwnerMustAct(answer.text)
        else:
            _converse(runner, Line(place), Prompt(place.data / "chat-history"))


def _converse(runner: asyncio.Runner, line: Line, prompt: Prompt) -> None:
    """Turn after turn, until Ctrl-D; what goes wrong with one message does not end it."""
    print("Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands.", file=sys.stderr)
    for text in prompt.lines():
        if text in LEAVE:
            return
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            try:
                runner.run(_turn(line, Screen(watched=True), text))
            except SupaclawError as exc:
                print(f"supaclaw: {exc}", file=sys.stderr)


async def _turn(line: Line, screen: Screen, text: str) -> Answered:
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
        answer = await line.ask(text)
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
    return answer


async def _watch(line: Line, screen: Screen) -> None:
    async for event in line.events():
        screen.show(event)
