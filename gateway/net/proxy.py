"""The network of one command in the jail: a proxy to the hosts that a person approved, which ends with the command.

In namespaces a command's network is its own and empty but for loopback; in a container all commands share such a one;
with Landlock alone it can connect to nothing but this. The jail hands out a socket that listens there. A host's name is
looked up here, by the guarded client's rules, when it is connected.

An SDK that makes connections of its own is given one, too, so that no redirect and no name leads it elsewhere.
"""

import asyncio
import base64
import hmac
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from gateway.beside import cancel
from gateway.domain.errors import raising
from gateway.net.addresses import Rules, Target, parse_url
from gateway.net.errors import NetError
from gateway.net.fetch import load_client
from gateway.sandbox.command import Command, Window
from gateway.sandbox.workshop import NoNetwork, Running, Workshop

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkStream

MAX_CONNECTIONS, MAX_HEAD = 64, 64 * 1024
_PIECE = 64 * 1024
_CONNECT_SECONDS, _LAST_SECONDS = 10.0, 30.0
"""The latter for the rest of an answer once the command has sent all."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A host that may be reached; without a port in its text, on 80 and 443."""

    host: str
    ports: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> "Destination":
        """Parse `example.org` or `example.org:8443`; raises `NetError`."""
        target = parse_url(f"https://{text.strip()}")
        if target.rest != "/" or "/" in text:
            raise NetError("invalid_host", f"{text[:80]!r} isn't a host; write it as example.org or example.org:8443.")
        named = text.strip().endswith(f":{target.port}")
        return cls(target.host, (target.port,) if named else (80, 443))

    def __str__(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if len(self.ports) != 1 else f"{shown}:{self.ports[0]}"


ANYWHERE = Destination("*", ())
"""Any host that the rules allow: for a server whose owner says so, such as a browser."""


def destinations(hosts: Sequence[str], *, anywhere: bool = False) -> tuple[Destination, ...]:
    """Each host once; raises `NetError`. With `anywhere`, "*" is allowed, too."""
    if anywhere and tuple(hosts) == ("*",):
        return (ANYWHERE,)
    return tuple(dict.fromkeys(map(Destination.of, hosts)))


async def network_address(workshop: Workshop) -> str:
    """The address at which a command reaches its proxy; raises `NetError` if commands can't have a network."""
    try:
        return await workshop.network()
    except NoNetwork as error:
        raise NetError("no_network", f"Not started: {error}.") from error


async def start(
    workshop: Workshop,
    command: Command,
    hosts: Sequence[str],
    rules: Callable[[], Rules],
    *,
    typed: bool = False,
    apart: bool = False,
    window: Window | None = None,
    anywhere: bool = False,
) -> Running:
    """Start a command that reaches these hosts, none if there are none; raises `NetError`."""
    begin = partial(workshop.start, typed=typed, apart=apart, window=window)
    if not hosts:
        return await begin(command)
    network = await network_address(workshop)
    proxy = Proxy(destinations(hosts, anywhere=anywhere), rules, network)
    environment = {**command.environment, **proxy.environment}
    running = await begin(replace(command, network=network, environment=environment))
    running.closing.append(proxy.close)
    try:
        if listener := await running.listener():
            await proxy.serve(listener)
    except BaseException:
        await running.kill()
        raise
    return running


@dataclass(eq=False)
class Proxy:
    """The proxy of one command. Its credential is valid for this proxy only."""

    allowed: Sequence[Destination]
    rules: Callable[[], Rules]
    address: str
    """The `host:port` at which its user reaches it."""
    _token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that make programs use it."""
        url = self.url
        names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")
        return {**dict.fromkeys(names, url), "no_proxy": "", "NO_PROXY": "", "NODE_USE_ENV_PROXY": "1"}

    @property
    def url(self) -> str:
        """Its address, with its credential."""
        return f"http://agent:{self._token}@{self.address}"

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections at this socket until `close`."""
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=MAX_HEAD)

    def close(self) -> None:
        """Stop, and end all connections."""
        if self._server is not None:
            self._server.close()
        for each in self._open:
            each.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection has one"
        if len(self._open) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, TimeoutError, asyncio.CancelledError):
            pass  # the command has ended, or sent something else
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_CONNECT_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        try:
            request = _Request.parse(head)
            if not self._is_own(request):
                writer.write(_refusal("407 Proxy Authentication Required", "This is the proxy of another call."))
                return
            there = await self._connected(request.target)
        except NetError as error:
            status = "502 Bad Gateway" if error.code == "unreachable" else "403 Forbidden"
            writer.write(_refusal(status, str(error)))
            return
        try:
            if request.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                await there.write(request.forwarded.encode("latin-1"))
            await _pump(reader, writer, there)
        finally:
            await there.aclose()

    def _is_own(self, request: "_Request") -> bool:
        """Whether the request comes from this command: a browser sends no credential, but only it knows the address."""
        token = f"agent:{self._token}".encode()
        return ANYWHERE in self.allowed or hmac.compare_digest(request.credential.encode(), token)

    async def _connected(self, target: Target) -> "AsyncNetworkStream":
        named = any(target.host == each.host and target.port in each.ports for each in self.allowed)
        if not named and ANYWHERE not in self.allowed:
            raise NetError("not_approved", f"Only {', '.join(map(str, self.allowed))} may be reached by this command.")
        client = await asyncio.to_thread(load_client)
        self.rules().admit(target)
        with raising(NetError("unreachable", f"{target.host} can't be reached."), *client.NO_CONNECTION):
            stream: AsyncNetworkStream = await client.Network(self.rules).connect_tcp(
                target.host, target.port, _CONNECT_SECONDS
            )
        return stream


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to the proxy; `forwarded` is the head that the host gets."""

    target: Target
    tunnel: bool
    credential: str
    forwarded: str

    @classmethod
    def parse(cls, head: str) -> "_Request":
        """Raises `NetError`."""
        line, *lines = head.rstrip("\r\n").split("\r\n")
        method, _, rest = line.partition(" ")
        place, _, version = rest.rpartition(" ")
        tunnel = method == "CONNECT"
        target = parse_url(f"https://{place}" if tunnel else place)
        if not version.startswith("HTTP/1.") or target.scheme != ("https" if tunnel else "http"):
            raise NetError("invalid_request", "This proxy takes CONNECT, and requests for http:// addresses.")
        fields = [(name.strip().lower(), value.strip()) for name, _, value in (each.partition(":") for each in lines)]
        credential = _basic_credential(dict(fields).get("proxy-authorization", ""))
        own = [each for each, (name, _) in zip(lines, fields, strict=True) if not _of_proxy(name)]
        host = target.origin.partition("://")[2]
        forwarded = "\r\n".join(
            [f"{method} {target.rest} HTTP/1.1", f"Host: {host}", *own, "Connection: close", "", ""]
        )
        return cls(target, tunnel, credential, forwarded)


def _of_proxy(name: str) -> bool:
    return name in ("host", "connection", "keep-alive", "upgrade") or name.startswith("proxy-")


def _basic_credential(header: str) -> str:
    kind, _, value = header.partition(" ")
    with suppress(ValueError):
        return base64.b64decode(value, validate=True).decode("latin-1") if kind.lower() == "basic" else ""
    return ""


def _refusal(status: str, reason: str) -> bytes:
    body = f"{reason}\n".encode()
    asks = 'Proxy-Authenticate: Basic realm="SupaClaw"\r\n' if status.startswith("407") else ""
    head = f"HTTP/1.1 {status}\r\n{asks}Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"{head}\r\n\r\n".encode() + body


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: "AsyncNetworkStream") -> None:
    """Pass bytes on, both ways, until the host has sent all."""
    up, down = asyncio.ensure_future(_upload(reader, there)), asyncio.ensure_future(_download(there, writer))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((down,), timeout=_LAST_SECONDS)
    finally:
        await cancel(up, down)


async def _upload(reader: asyncio.StreamReader, there: "AsyncNetworkStream") -> None:
    while piece := await reader.read(_PIECE):
        await there.write(piece)


async def _download(there: "AsyncNetworkStream", writer: asyncio.StreamWriter) -> None:
    while piece := await there.read(_PIECE):
        writer.write(piece)
        await writer.drain()
