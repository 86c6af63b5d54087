"""A name with several addresses, some of which lead nowhere: over real sockets, with names as the test says."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager

import pytest

from gateway.net import addresses, fetch
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.proxy import Destination, Proxy
from tests.net.servers import Server, page, serving

HOST = "dual.test"


@contextmanager
def black_hole(address: str, port: int) -> Iterator[None]:
    """An address whose connections are neither accepted nor refused: the queue of its listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(2):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield


@asynccontextmanager
async def reachable(monkeypatch: pytest.MonkeyPatch, *others: str) -> AsyncIterator[tuple[Server, Rules]]:
    """A server at 127.0.0.1, and a name with these addresses before that one."""

    async def look_up(host: str, _port: int) -> list[str]:
        return [*others, "127.0.0.1"] if host == HOST else [host]

    monkeypatch.setattr(addresses, "look_up", look_up)
    async with serving(page(b"here")) as server:
        yield server, Rules.of([f"{HOST}:{server.port}"])


async def test_an_address_that_never_answers_does_not_prevent_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reachable(monkeypatch, "127.0.0.2") as (server, rules):
        with black_hole("127.0.0.2", server.port):
            found = await fetch.get_page(f"http://{HOST}:{server.port}/", rules)

    assert found.body == b"here"
    assert len(server.asked) == 1


async def test_many_addresses_of_one_family_leave_room_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reachable(monkeypatch, *(f"fd00::{number}" for number in range(1, 9))) as (server, rules):
        found = await fetch.get_page(f"http://{HOST}:{server.port}/", rules)

    assert found.body == b"here"


async def test_the_proxy_of_a_command_connects_to_the_next_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reachable(monkeypatch, "127.0.0.2") as (server, rules):
        listener = socket.create_server(("127.0.0.1", 0))
        own = "127.0.0.1", listener.getsockname()[1]
        proxy = Proxy([Destination(HOST, (server.port,))], lambda: rules, f"{own[0]}:{own[1]}")
        await proxy.serve(listener)
        with closing(proxy), black_hole("127.0.0.2", server.port):
            answer = await asyncio.to_thread(_by_proxy, proxy.url, f"http://{HOST}:{server.port}/")

    assert answer == b"here"


async def test_a_name_that_is_reachable_nowhere_fails_once_all_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reachable(monkeypatch, "127.0.0.2") as (server, rules):
        pass

    with pytest.raises(NetError, match=r"dual\.test can't be reached"):
        await fetch.get_page(f"http://{HOST}:{server.port}/", rules)


async def test_one_forbidden_address_still_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reachable(monkeypatch, "169.254.169.254") as (server, rules):
        with pytest.raises(NetError, match="always blocked"):
            await fetch.get_page(f"http://{HOST}:{server.port}/", rules)

    assert server.asked == []


def _by_proxy(proxy: str, url: str) -> bytes:
    from urllib.request import ProxyHandler, build_opener

    with build_opener(ProxyHandler({"http": proxy})).open(url, timeout=30) as answer:
        body: bytes = answer.read()
        return body
