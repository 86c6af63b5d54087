"""A model server that breaks every bound: what it answers is named in the user's words, `endless:<case>`.

It writes raw HTTP, since no library would send most of this. Any other message is answered "Reply fin<digits>x".
Run `python -m tests.fakes.endless_models` in a process of its own: it prints its address.
"""

import argparse
import asyncio
import itertools
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from typing import Any

from tests.fakes.openai_server import MARKER, last_user_text

BLOCK = 2**16
CASE = re.compile(r"endless:([\w-]+)")
Bytes = Iterator[bytes]


def head(kind: str = "text/event-stream", *lines: str, status: str = "200 OK") -> bytes:
    fields = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *lines)
    return "\r\n".join((*fields, "", "")).encode()


def event(body: Any) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields}]})


def call(index: int | None = 0, id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id, "function": function}


def finish(reason: str = "stop", **fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **fields})


DONE = b"data: [DONE]\n\n"


def again(piece: bytes, first: bytes = b"") -> Bytes:
    """`first`, then the same for ever, in blocks."""
    if first:
        yield first
    yield from itertools.repeat(piece * max(1, BLOCK // len(piece)))


def counted(make: Callable[[int], bytes]) -> Bytes:
    """For ever another one, a hundred at a time."""
    for start in itertools.count(0, 100):
        yield b"".join(map(make, range(start, start + 100)))


def bomb(kind: str, inner: bytes, layers: int = 1) -> Bytes:
    """Zeros of meaning, squeezed a thousandfold, for ever; each layer squeezes the one before."""
    bits = {"gzip": 31, "deflate": 15}[kind]
    outer = [zlib.compressobj(9, zlib.DEFLATED, bits) for _ in range(layers)]
    while True:
        data = inner * (2**22 // len(inner))
        for squeeze in outer:
            data = squeeze.compress(data) + squeeze.flush(zlib.Z_SYNC_FLUSH)
        yield data


def chunked(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def wide(width: int, opening: bytes, item: bytes) -> bytes:
    """One line of so many bytes."""
    return b"data: " + opening + item * (width // len(item)) + b"\n\n"


def tooled(*pieces: dict[str, Any], more: bytes = b"") -> bytes:
    return b"".join(delta(tool_calls=[piece]) for piece in pieces) + more + finish("tool_calls") + DONE


SSE = head()
JSON = head("application/json")
WORD = delta(content="word ")
SAID = delta(content="said ") + finish()
HUGE = 10**30

STREAMS: dict[str, Callable[[], Bytes]] = {
    "words": lambda: again(WORD, SSE),
    "letters": lambda: again(delta(content="a"), SSE),
    "paragraphs": lambda: again(delta(content="word *word*\n\n"), SSE),
    "line": lambda: again(b"a" * BLOCK, SSE + b'data: {"choices":[{"delta":{"content":"'),
    "line-carriage-returns": lambda: again(b"a\r", SSE + b"data: {\r"),
    "line-no-field": lambda: again(b"a" * BLOCK, SSE),
    "line-objects": lambda: again(b"{},", SSE + b'data: {"choices":['),
    "json-text": lambda: again(b"a" * BLOCK, JSON + b'{"choices":[{"message":{"content":"'),
    "json-objects": lambda: again(b"{},", JSON + b'{"choices":['),
    "json-lines": lambda: again(b"[\n", JSON),
    "json-length-lies": lambda: again(b" " * BLOCK, head("application/json", f"Content-Length: {10**12}")),
    "event-500mb": lambda: itertools.chain(
        [SSE, b'data: {"choices":[{"delta":{"content":"'], itertools.repeat(b"a" * BLOCK, 8000), [b'"}}]}\n\n', DONE]
    ),
    "wide-choices": lambda: again(wide(1_900_000, b'{"choices":[', b"{},"), SSE),
    "wide-calls": lambda: again(
        b"data: " + b'{"choices":[{"delta":{"tool_calls":[' + b"{}," * 600_000 + b"{}]}}]}\n\n", SSE
    ),
    "wide-unknown": lambda: again(b'data: {"x":[' + b"0," * 900_000 + b"0]}\n\n", SSE),
    "wide-objects": lambda: again(b'data: {"x":[' + b'{"a":0},' * 200_000 + b"0]}\n\n", SSE),
    "wide-parts": lambda: again(b'data: {"choices":[{"delta":{"content":[' + b"{}," * 600_000 + b"{}]}}]}\n\n", SSE),
    "comments": lambda: again(b": keep-alive\n\n", SSE),
    "newlines": lambda: again(b"\n", SSE),
    "fields": lambda: again(b"event: x\nid: 1\n\n", SSE),
    "empty-data": lambda: again(b"data:\n\n", SSE),
    "empty-objects": lambda: again(b"data:{}\n", SSE),
    "empty-choices": lambda: again(event({"choices": []}), SSE),
    "empty-deltas": lambda: again(delta(), SSE),
    "empty-content": lambda: again(delta(content=""), SSE),
    "roles": lambda: again(delta(role="assistant"), SSE),
    "arguments": lambda: again(
        delta(tool_calls=[call(0, None, None, "word ")]), SSE + delta(tool_calls=[call(0, "a", "write_file")])
    ),
    "empty-arguments": lambda: again(delta(tool_calls=[call()]), SSE + delta(tool_calls=[call(0, "a", "write_file")])),
    "calls-new-index": lambda: itertools.chain(
        [SSE], counted(lambda n: delta(tool_calls=[call(n, f"call{n}", "write_file", "{}")]))
    ),
    "calls-no-index": lambda: itertools.chain(
        [SSE], counted(lambda n: delta(tool_calls=[call(None, f"call{n}", "write_file", "{}")]))
    ),
    "calls-same-index": lambda: itertools.chain(
        [SSE], counted(lambda n: delta(tool_calls=[call(0, f"call{n}", "write_file", "{}")]))
    ),
    "calls-huge-index": lambda: itertools.chain(
        [SSE], counted(lambda n: delta(tool_calls=[call(10**15 + n, None, "write_file", "{}")]))
    ),
    "calls-negative": lambda: itertools.chain(
        [SSE], counted(lambda n: delta(tool_calls=[call(-n, None, "write_file", "{}")]))
    ),
    "names": lambda: again(delta(tool_calls=[call(0, None, "name")]), SSE),
    "ids": lambda: again(b"a" * BLOCK, SSE + b'data: {"choices":[{"delta":{"tool_calls":[{"id":"'),
    "reasoning": lambda: again(delta(reasoning_content="word "), SSE),
    "thinking": lambda: again(delta(content=[{"type": "thinking", "thinking": [{"text": "word "}]}]), SSE),
    "usage": lambda: again(event({"choices": [], "usage": {"prompt_tokens": 1}}), SSE),
    "gzip": lambda: itertools.chain(
        [head("text/event-stream", "Content-Encoding: gzip")], bomb("gzip", b": keep-alive\n\n")
    ),
    "gzip-line": lambda: itertools.chain([head("text/event-stream", "Content-Encoding: gzip")], bomb("gzip", b"a")),
    "gzip-nested": lambda: itertools.chain(
        [head("text/event-stream", "Content-Encoding: gzip, gzip")], bomb("gzip", b"a", 2)
    ),
    "deflate": lambda: itertools.chain([head("text/event-stream", "Content-Encoding: deflate")], bomb("deflate", b"a")),
    "error-gzip": lambda: itertools.chain(
        [head("application/json", "Content-Encoding: gzip", status="500 No")], bomb("gzip", b"no ")
    ),
    "brotli": lambda: again(b"a" * BLOCK, head("text/event-stream", "Content-Encoding: br")),
    "error-400": lambda: again(b"no " * 999, head("text/plain", status="400 No")),
    "error-500": lambda: again(b"no " * 999, head("text/plain", status="500 No")),
    "error-json": lambda: again(b"no " * 999, head("application/json", status="400 No") + b'{"error":{"message":"'),
    "status-line": lambda: again(b"a" * BLOCK, b"HTTP/1.1 200 "),
    "header-line": lambda: again(b"a" * BLOCK, b"HTTP/1.1 200 OK\r\nX-Long: "),
    "header-name": lambda: again(b"a" * BLOCK, b"HTTP/1.1 200 OK\r\n"),
    "headers": lambda: again(b"X-Header: a\r\n", b"HTTP/1.1 200 OK\r\n"),
    "informational": lambda: again(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early-hints": lambda: again(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
    "redirects": lambda: iter([head("text/plain", "Location: /v1/chat/completions", status="307 There")]),
    "redirect-body": lambda: again(b"a" * BLOCK, head("text/plain", "Location: ?again", status="307 There")),
    "tiny-chunks": lambda: again(
        b"".join(chunked(bytes([byte])) for byte in WORD), head("text/event-stream", "Transfer-Encoding: chunked")
    ),
    "chunk-extension": lambda: again(
        b"a" * BLOCK, head("text/event-stream", "Transfer-Encoding: chunked") + b"5;extension="
    ),
    "trailers": lambda: again(
        b"X-Trailer: a\r\n", head("text/event-stream", "Transfer-Encoding: chunked") + chunked(SAID) + b"0\r\n"
    ),
    "finish-then-words": lambda: again(WORD, SSE + SAID),
    "finish-then-comments": lambda: again(b": x\n\n", SSE + SAID),
    "done-then-words": lambda: again(WORD, SSE + SAID + DONE),
    "words-then-comments": lambda: again(b": x\n\n", SSE + WORD * 99),
}
"""Never end."""

HELD: dict[str, bytes] = {
    "no-done": SSE + SAID,
    "half": SSE + WORD * 3,
    "head-only": SSE,
    "half-head": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "nothing": b"",
}
"""Sent, and then nothing more."""

ONCE: dict[str, bytes] = {
    "nested": SSE + tooled(call(0, "a", "write_file", "[" * 100_000)),
    "nested-objects": SSE + tooled(call(0, "a", "write_file", '{"path":' * 50_000)),
    "nested-event": SSE + b"data: " + b"[" * 100_000 + b"\n\n" + SAID + DONE,
    "digits": SSE + tooled(call(0, "a", "write_file", '{"path": "a", "content": ' + "9" * 10**6 + "}")),
    "digits-event": SSE + b'data: {"usage": {"prompt_tokens": ' + b"9" * 10**6 + b"}}\n\n" + SAID + DONE,
    "usage-huge": SSE
    + delta(content="said ")
    + finish(usage={"prompt_tokens": HUGE, "completion_tokens": HUGE, "cost": 1e300})
    + DONE,
    "usage-negative": SSE
    + delta(content="said ")
    + finish(usage={"prompt_tokens": -5, "completion_tokens": -(2**62), "cost": -1e9})
    + DONE,
    "usage-nonsense": SSE + delta(content="said ") + finish(usage={"prompt_tokens": "many", "cost": []}) + DONE,
    "usage-int64": SSE
    + delta(content="said ")
    + finish(usage={"prompt_tokens": 2**62, "completion_tokens": 2**62, "cost": 10**6})
    + DONE,
    "duplicate-ids": SSE
    + tooled(*(call(n, "same", "write_file", json.dumps({"path": f"{n}.md", "content": "a"})) for n in range(3))),
    "calls-64": SSE + tooled(*(call(n, f"c{n}", "list_files", "{}") for n in range(64))),
    "calls-65": SSE + tooled(*(call(n, f"c{n}", "list_files", "{}") for n in range(65))),
    "long-id": SSE + tooled(call(0, "i" * 100_000, "list_files", "{}")),
    "surrogates": SSE + b'data: {"choices":[{"delta":{"content":"said \\ud800 \\udfff"}}]}\n\n' + finish() + DONE,
    "nul": SSE + delta(content="said \0\0") + finish() + DONE,
    "nul-call": SSE
    + tooled(call(0, "a\0b", "list\0files", json.dumps({"path": "a\0b"})), call(1, "c", "write_file", "\0")),
    "bom": SSE + b"\xef\xbb\xbf" + delta(content="\ufeffsaid ") + finish() + DONE,
    "not-utf8": SSE + b'data: {"choices":[{"delta":{"content":"said \xff\xfe"}}]}\n\n' + SAID + DONE,
    "three-quarters": SSE + delta(content="word " * 150_000) + finish() + DONE,
}
"""Ends, but is absurd."""

DRIPPED: dict[str, tuple[float, bytes, bytes]] = {
    "loris": (50, SSE, WORD),
    "loris-comments": (0.5, SSE, b": x\n\n"),
    "loris-letters": (0.05, SSE, delta(content="a")),
    "loris-head": (0.2, b"HTTP/1.1 200 OK\r\n", b"X-Header: a\r\n"),
    "loris-line": (0.05, SSE + b"data: ", b"a"),
}
"""One piece after another, so many seconds apart."""

CASES = (*STREAMS, *HELD, *ONCE, *DRIPPED)


class EndlessModels:
    """The server; `sent` counts bytes by case."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self.sent: dict[str, int] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "EndlessModels":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=2**26)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer.transport):
            request = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", request, re.IGNORECASE)
            body = json.loads(await reader.readexactly(int(length[1]) if length else 0) or b"{}")
            case, marker = _asked(body.get("messages", []))
            async for piece in _answer(case, marker):
                writer.write(piece)
                self.sent[case] = self.sent.get(case, 0) + len(piece)
                await writer.drain()


def _asked(messages: list[dict[str, Any]]) -> tuple[str, str]:
    text = last_user_text(messages)
    cases = [] if messages and messages[-1]["role"] == "tool" else CASE.findall(text)
    return (cases or [""])[-1], (MARKER.findall(text) or ["0"])[-1]


async def _answer(case: str, marker: str) -> AsyncIterator[bytes]:
    if case in DRIPPED:
        seconds, first, piece = DRIPPED[case]
        yield first
        while True:
            yield piece
            await asyncio.sleep(seconds)
    elif case in STREAMS:
        for piece in STREAMS[case]():
            yield piece
            await asyncio.sleep(0)
    elif case in HELD:
        yield HELD[case]
        await asyncio.Event().wait()
    else:
        yield ONCE.get(case) or SSE + delta(content=f"Reply fin{marker}x") + finish() + DONE


async def serve(port: int) -> None:
    async with EndlessModels(port) as models:
        print(models.base_url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(serve(parser.parse_args().port))
