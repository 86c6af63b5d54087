"""Exchanges with providers, made by hand from their documentation and from public reports.

A file is one exchange, in JSON lines. The first is its header:

`provider`, `habit` (one of `HABITS`), `source` (where it is documented or reported, with `from memory:` before what no
such place was found for), `model` (as configured; its prefix chooses our code), `expects` (see `Expected`), and, if
they matter, `ask` (the person's words), `messages` (those before them, in OpenAI's form), `image` (one is attached),
`api` and `thinking` (as configured).

Then what the server sends. A line with `http` begins a response: its status, `headers` and `body`, JSON or text. After
one without a body the stream follows, and a file that begins with a chunk begins a stream with status 200: an object is
one event, or with `aws_event` (its name) and `payload` one of AWS's binary event streams; a text is sent as it is,
except `[DONE]`, which is the usual last event. The last response answers all later requests.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from gzip import compress
from pathlib import Path
from typing import Any
from zlib import crc32

HABITS = {
    "pieces": "calls in pieces",
    "framing": "form of the stream",
    "ending": "endings, limits, emptiness",
    "thinking": "thinking",
    "written": "calls as text",
    "long": "too long",
    "often": "too often",
    "access": "key, credit, model",
    "busy": "overloaded, unreachable",
    "content": "refused content",
    "fields": "refused fields, tools, pictures",
}
"""The subjects of exchanges, with the heading of each in docs/models.md."""
FOLDER = Path(__file__).parent / "exchanges"


@dataclass(frozen=True, slots=True)
class Response:
    """One response, as bytes."""

    status: int
    headers: dict[str, str]
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected behaviour of the gateway; a field that is None is not compared."""

    text: str | None = None
    """The whole answer; the person sees it and nothing else."""
    thought: str | None = None
    calls: list[list[Any]] | None = None
    """Names and arguments of the calls."""
    written: bool = False
    """Whether the call was written as text."""
    error: str | None = None
    """The kind of the last failed try, where no try succeeds."""
    says: str = ""
    """Part of the answer, or of what the person reads about the failure."""
    never_says: str = ""
    """No part of it."""
    overflow: bool | None = None
    """Whether the conversation is shortened next."""
    waits: list[float] | None = None
    """The pauses, in seconds."""
    requests: int | None = None
    sent: dict[str, Any] = field(default_factory=dict)
    """Fields of the last request."""
    left_out: list[str] = field(default_factory=list)
    """Fields of the first request that the last one doesn't have."""
    tokens: list[int] | None = None
    """Tokens of the prompt and of the answer."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One file."""

    name: str
    provider: str
    habit: str
    source: str
    model: str
    expects: Expected
    responses: tuple[Response, ...]
    ask: str = "hello"
    messages: tuple[dict[str, Any], ...] = ()
    image: bool = False
    api: str = "chat"
    thinking: str | None = None


def read(path: Path) -> Exchange:
    """The exchange of a file."""
    header, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    expects = Expected(**header.pop("expects"))
    messages = tuple(header.pop("messages", ()))
    return Exchange(path.stem, expects=expects, responses=tuple(_responses(lines)), messages=messages, **header)


def exchanges() -> list[Exchange]:
    """All of them, in the order of their names."""
    return [read(path) for path in sorted(FOLDER.glob("*.jsonl"))]


def _responses(lines: list[Any]) -> Iterator[Response]:
    head: dict[str, Any] = {"http": 200}
    pieces: list[bytes] = []
    for line in lines:
        if isinstance(line, dict) and "http" in line:
            if pieces:
                yield _stream(head, pieces)
            head, pieces = line, []
            if "body" in line:
                yield _whole(line)
        else:
            pieces.append(_piece(line))
    if pieces or "body" not in head:
        yield _stream(head, pieces)


def _stream(head: dict[str, Any], pieces: list[bytes]) -> Response:
    headers = {"Content-Type": "text/event-stream", **head.get("headers", {})}
    return Response(head["http"], headers, _packed(headers, pieces))


def _whole(head: dict[str, Any]) -> Response:
    body = head["body"]
    kind, text = ("text/html", body) if isinstance(body, str) else ("application/json", json.dumps(body))
    headers = {"Content-Type": kind, **head.get("headers", {})}
    return Response(head["http"], headers, _packed(headers, [text.encode()]))


def _packed(headers: dict[str, str], pieces: Sequence[bytes]) -> tuple[bytes, ...]:
    return (compress(b"".join(pieces)),) if headers.get("Content-Encoding") == "gzip" else tuple(pieces)


def _piece(line: Any) -> bytes:
    if line == "[DONE]":
        return b"data: [DONE]\n\n"
    if isinstance(line, dict) and "aws_event" in line:
        return _aws_event(line["aws_event"], json.dumps(line["payload"]).encode())
    return line.encode() if isinstance(line, str) else f"data: {json.dumps(line, ensure_ascii=False)}\n\n".encode()


def _aws_event(name: str, payload: bytes) -> bytes:
    """An event of `application/vnd.amazon.eventstream`; a name that ends in `Exception` is an error."""
    kind = "exception" if name.endswith("Exception") else "event"
    told = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + len(value).to_bytes(2, "big") + value.encode()
        for key, value in told.items()
    )
    length = 16 + len(headers) + len(payload)
    prelude = length.to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    frame = prelude + crc32(prelude).to_bytes(4, "big") + headers + payload
    return frame + crc32(frame).to_bytes(4, "big")
