"""`supaclaw chat`: the terminal channel, which shows an answer as it streams and sends files with the next message.

Its client of the gateway's chat API survives restarts of the gateway without losing a message.
"""

import asyncio
import glob
import json
import os
import shlex
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import httpx
from pydantic import JsonValue, TypeAdapter

from gateway.beside import cancel
from gateway.cli.connections.local_gateway import LocalGateway, ensure_gateway, local_token
from gateway.cli.terminal.console import Style, echo, show_after_a_second
from gateway.cli.terminal.output import argument, option
from gateway.domain.channels.routing import parse_command
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater, explained
from gateway.domain.json import OBJECT

RETRY_SECONDS = 60.0
PAUSE_SECONDS = 0.3
_FILES = TypeAdapter(list[dict[str, JsonValue]])

ATTACH = "/attach"

_MAX_ARGUMENTS = 100


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer to a message, with the files that the agent sent; `failed` means that it could not answer."""

    text: str
    failed: bool
    files: tuple[Mapping[str, JsonValue], ...] = ()


@dataclass(frozen=True, slots=True)
class ChatClient:
    """A client for one chat. Every method waits up to a minute for a gateway that is restarting."""

    gateway: LocalGateway
    chat: str = "main"

    async def ask(self, text: str, files: Sequence[Path] = ()) -> ChatAnswer:
        """Send a message or a command and wait for the answer; raises `SupaclawError`."""
        async with self._client() as http:
            sent = await self._send(http, text, [await self._upload(http, file) for file in files])
            if sent["kind"] == "ignored":
                raise OwnerMustAct(f"not sent: {sent['reason']}; /help lists the commands")
            while True:
                answer = await self._request(http, "GET", f"/api/answers/{sent['inbox_id']}?wait=25")
                if answer.status_code == 200:
                    reply = OBJECT.validate_json(answer.content)
                    failed = bool(reply["notice"]) and sent["kind"] == "message"
                    return ChatAnswer(str(reply["text"]), failed, tuple(_FILES.validate_python(reply["files"])))

    async def stop(self) -> None:
        """Stop the answer that is being written."""
        async with self._client() as http:
            await self._send(http, "/stop")

    async def events(self) -> AsyncIterator[Mapping[str, JsonValue]]:
        """Yield the events of the chat, without end; after a reconnect, a snapshot comes first."""
        which = {"chat": self.chat}
        while True:
            try:
                async with self._client() as http, http.stream("GET", "/api/events", params=which) as stream:
                    async for line in stream.aiter_lines():
                        if stream.is_success and line.startswith("data: "):
                            yield OBJECT.validate_json(line.removeprefix("data: "))
            except httpx.TransportError:
                pass
            await asyncio.sleep(PAUSE_SECONDS)

    async def _upload(self, http: httpx.AsyncClient, file: Path) -> JsonValue:
        return OBJECT.validate_json((await self._request(http, "POST", "/api/files", file=file)).content)["id"]

    async def _send(self, http: httpx.AsyncClient, text: str, files: Sequence[JsonValue] = ()) -> dict[str, JsonValue]:
        body = {"text": text, "files": list(files), "chat": self.chat, "client_id": str(uuid4())}
        answer = await self._request(http, "POST", "/api/messages", json.dumps(body))
        return OBJECT.validate_json(answer.content)

    async def _request(
        self, http: httpx.AsyncClient, method: str, path: str, body: str | None = None, file: Path | None = None
    ) -> httpx.Response:
        """Retry until there is a response: each message has a client id, so the gateway ignores duplicates."""
        problem = ""
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                while True:
                    try:
                        answer = await self._once(http, method, path, body, file)
                    except httpx.TransportError as exc:
                        problem = f"it cannot be reached ({type(exc).__name__})"
                    else:
                        if answer.status_code < 400:
                            return answer
                        problem = _problem(answer)
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise TryAgainLater(f"the gateway at {self.gateway.url} does not answer: {problem}") from None

    async def _once(
        self, http: httpx.AsyncClient, method: str, path: str, body: str | None, file: Path | None
    ) -> httpx.Response:
        if file is None:
            return await http.request(method, path, content=body, headers={"Content-Type": "application/json"})
        with explained(f"{file} cannot be read"):
            opened = file.open("rb")
        with opened:
            return await http.request(method, path, files={"file": (file.name, opened)})

    def _authorized(self, request: httpx.Request) -> httpx.Request:
        """Add the token, which changes with each start of the gateway, so each request reads it."""
        request.headers["Authorization"] = f"Bearer {local_token(self.gateway.environment)}"
        return request

    def _client(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(40, connect=5)
        return httpx.AsyncClient(base_url=self.gateway.url, auth=self._authorized, timeout=timeout)


def _problem(answer: httpx.Response) -> str:
    """The message of an error response; raises `OwnerMustAct` if a retry can't help."""
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"it answers {answer.status_code}"
    if 400 <= answer.status_code < 500 and answer.status_code not in {401, 429}:
        raise OwnerMustAct(message)
    return message


@dataclass(slots=True)
class PendingFiles:
    """Files attached and not yet sent."""

    _files: list[Path] = field(default_factory=list)

    def handle(self, line: str) -> bool:
        """Run the line if it is `/attach PATH`, and return whether it is; raises `OwnerMustAct`."""
        command, _, rest = line.partition(" ")
        if command != ATTACH:
            return False
        self.add(_paths(rest.strip()))
        names = ", ".join(file.name for file in self._files) or "nothing yet; write /attach PATH"
        echo(f"Sent with your next message: {names}", error=True)
        return True

    def add(self, files: Iterable[Path]) -> None:
        """Attach files; raises `OwnerMustAct` if one is not a file."""
        for file in files:
            if not file.is_file():
                raise OwnerMustAct(f"{file} is not a file")
            self._files.append(file)

    def take(self) -> tuple[Path, ...]:
        """Return all of them and clear the list."""
        files = tuple(self._files)
        self._files.clear()
        return files


def completions(line: str) -> list[str]:
    """The completions of an `/attach` line; none for other lines."""
    command, space, typed = line.partition(" ")
    if command != ATTACH or not space:
        return []
    found = sorted(glob.iglob(glob.escape(os.path.expanduser(typed)) + "*"))
    return [f"{ATTACH} {path}{'/' if os.path.isdir(path) else ''}" for path in found]


def _paths(text: str) -> list[Path]:
    """The text as one path if that is a file, else as shell-quoted paths."""
    whole = Path(text).expanduser()
    if whole.is_file() or not text:
        return [whole] if text else []
    try:
        return [Path(word).expanduser() for word in shlex.split(text)]
    except ValueError:
        return [whole]


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
    for text in typed_messages(history, completions):
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
        await cancel(*stops, *([watching] if watching else []))
        screen.stop_waiting()
    if not answer.failed or screen.interactive:
        screen.finish(answer.text)
    for file in answer.files:
        screen.note(f"· {file['path'] or file['name']} · supaclaw files get {file['id']}")
    return answer


async def _watch(client: ChatClient, screen: Screen) -> None:
    async for event in client.events():
        screen.show(event)
