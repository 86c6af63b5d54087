"""No address that is not public is ever connected to, however it is written, looked up or redirected to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import quote, unquote

import pytest

from gateway.net import fetch
from gateway.net.addresses import Reach, Rules, parse_ip, parse_url, reach
from gateway.net.errors import NetError
from tests.net.cases import ALLOWED, BLOCKED, NAMES, PUBLIC, REDIRECTED
from tests.net.dialling import Dialling


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """`/to?` and a quoted address redirects there, all else is fine."""
    path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
    begin, _, location = path.partition("?")
    if begin == "/to":
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {unquote(location)}\r\nContent-Length: 0\r\n\r\n".encode())
    else:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()
    writer.close()


@pytest.fixture
async def dialling(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Dialling]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        dialling = Dialling(monkeypatch)
        dialling.server = server.sockets[0].getsockname()[1]
        yield dialling


@pytest.mark.parametrize("trick", sorted(BLOCKED))
async def test_nothing_private_is_connected_to(dialling: Dialling, trick: str) -> None:
    for url in BLOCKED[trick].split():
        dialling.known(NAMES)

        with pytest.raises(NetError) as refused:
            await fetch.get_page(url, Rules())

        assert (url, dialling.dialled) == (url, [])
        assert refused.value.code in ("not_allowed", "invalid_url", "unknown_host"), url
        assert "\n" not in str(refused.value)
        assert str(refused.value).endswith((".", "net.private_allow.")), str(refused.value)


@pytest.mark.parametrize(
    "url", [" http://public.test/", "http://public.test/\r\nX: y", "http://pub\tlic.test/", "http://public.test/a b"]
)
async def test_white_space_in_an_address_is_refused(dialling: Dialling, url: str) -> None:
    with pytest.raises(NetError, match="spaces"):
        await fetch.get_page(url, Rules())

    assert dialling.known(NAMES).dialled == []


async def test_each_redirect_is_checked(dialling: Dialling) -> None:
    for location in REDIRECTED.split():
        dialling.known(NAMES)

        with suppress(NetError):  # some are read as paths of the same host
            await fetch.get_page(f"http://public.test/to?{quote(location, safe='')}", Rules())

        assert set(dialling.dialled) == {PUBLIC}, location


async def test_a_redirect_of_a_redirect_is_checked(dialling: Dialling) -> None:
    dialling.known(NAMES)
    last = quote("http://loop.test/", safe="")

    with pytest.raises(NetError, match=r"loop.test is in a private network"):
        await fetch.get_page(f"http://public.test/to?{quote(f'http://other.test/to?{last}', safe='')}", Rules())

    assert dialling.dialled == [PUBLIC, "93.184.216.35"]


async def test_what_is_public_is_read(dialling: Dialling) -> None:
    for url in ALLOWED.split():
        dialling.known(NAMES)

        page = await fetch.get_page(url, Rules())

        assert (url, page.body, len(dialling.dialled)) == (url, b"ok", 1)


async def test_the_address_that_was_checked_is_the_one_that_is_dialled(dialling: Dialling) -> None:
    dialling.known(NAMES)

    await fetch.get_page("http://rebind.test/", Rules())

    assert (dialling.looked_up, dialling.dialled) == (["rebind.test"], [PUBLIC])


async def test_no_proxy_of_the_environment_is_used(dialling: Dialling, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://93.184.216.99:3128")
    dialling.known(NAMES)

    await fetch.get_page("http://public.test/", Rules())

    assert dialling.dialled == [PUBLIC]


class TestHosts:
    async def test_a_denied_host_and_its_subdomains_are_not_even_looked_up(self, dialling: Dialling) -> None:
        dialling.known({**NAMES, "sub.public.test": [[PUBLIC]]})
        for url in ("http://public.test/", "http://sub.PUBLIC.test./"):
            with pytest.raises(NetError, match="deny_hosts"):
                await fetch.get_page(url, Rules.of([], deny=["*.Public.Test"]))

        assert dialling.looked_up == []

    async def test_only_allowed_hosts_where_some_are_named(self, dialling: Dialling) -> None:
        dialling.known(NAMES)
        rules = Rules.of([], allow=["public.test"])

        assert (await fetch.get_page("http://public.test/", rules)).body == b"ok"
        for url in ("http://other.test/", "http://notpublic.test/", f"http://{PUBLIC}/"):
            with pytest.raises(NetError, match="allow_hosts"):
                await fetch.get_page(url, rules)

    async def test_a_redirect_leads_to_allowed_hosts_only(self, dialling: Dialling) -> None:
        dialling.known(NAMES)

        with pytest.raises(NetError, match=r"other.test is in tools.web.deny_hosts"):
            await fetch.get_page(
                f"http://public.test/to?{quote('http://other.test/')}", Rules.of([], deny=["other.test"])
            )


class TestPrivateAllow:
    @pytest.mark.parametrize(
        ("entry", "url"),
        [
            ("lan.test", "http://lan.test/"),
            ("lan.test:8123", "http://lan.test:8123/"),
            ("10.0.0.0/8", "http://lan.test/"),
            ("10.1.2.3", "http://10.1.2.3:8080/"),
            ("127.0.0.1:81", "http://127.0.0.1:81/"),
            ("localhost:8080", "http://localhost:8080/"),
            ("192.168.1.0/24", "http://printer.local/"),
        ],
    )
    async def test_a_listed_place_is_reached(self, dialling: Dialling, entry: str, url: str) -> None:
        dialling.known(NAMES)

        assert (await fetch.get_page(url, Rules.of([entry]))).body == b"ok"

    @pytest.mark.parametrize(
        ("entry", "url"),
        [
            ("lan.test:8123", "http://lan.test/"),
            ("10.1.2.3:8080", "http://lan.test/"),
            ("public.test", "http://lan.test/"),
            ("lan.test", "http://sub.lan.test/"),
            ("lan.test", "http://10.1.2.3/"),
            ("0.0.0.0/0", "http://meta.test/"),
            ("meta.test", "http://meta.test/"),
            ("169.254.169.254", "http://169.254.169.254/"),
            ("100.64.0.0/10", "http://alibaba.test/"),
            ("[fd00::]", "http://[fd00:ec2::254]/"),
            ("10.0.0.0/8", "http://nat64.test/"),
            ("127.0.0.1", "http://127.0.0.1:81/"),
            ("0.0.0.0", "http://zero.test/"),
        ],
    )
    async def test_nothing_else_is_and_cloud_metadata_never(self, dialling: Dialling, entry: str, url: str) -> None:
        dialling.known({**NAMES, "sub.lan.test": [["10.1.2.3"]]})

        with pytest.raises(NetError) as refused:
            await fetch.get_page(url, Rules.of([entry]))

        assert (refused.value.code, dialling.dialled) == ("not_allowed", [])

    @pytest.mark.parametrize(
        "entry",
        ["", "a b", "http://nas.lan", "10.0.0.0/99", "nas.lan:0", "nas.lan:99999", "::1", "256.1.1.1", "10.0.0.1/8"],
    )
    def test_what_is_no_place_is_refused_with_an_example(self, entry: str) -> None:
        with pytest.raises(ValueError, match=r"nas.lan:8080"):
            Rules.of([entry])

    async def test_the_refusal_names_the_entry(self, dialling: Dialling) -> None:
        dialling.known(NAMES)

        with pytest.raises(NetError, match=r'only its owner can allow it, with "lan.test:8123" in net.private_allow'):
            await fetch.get_page("http://lan.test:8123/", Rules())


def test_a_mapped_address_counts_as_what_it_maps() -> None:
    mapped = parse_ip("::ffff:127.0.0.1")

    assert mapped is not None
    assert (str(mapped), reach(mapped)) == ("127.0.0.1", Reach.PRIVATE)


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("HTTP://Example.COM:80", "http://example.com/"),
        ("https://example.com:8443?q=a", "https://example.com:8443/?q=a"),
        ("https://example.com/Käse/ß?x=ü#part", "https://example.com/K%C3%A4se/%C3%9F?x=%C3%BC"),
        ("https://example.com/a%2Fb?c=%20", "https://example.com/a%2Fb?c=%20"),
        ("http://[2A00:1450:0:0::1]:8080/x", "http://[2a00:1450::1]:8080/x"),
    ],
)
def test_addresses_have_one_form(url: str, asked: str) -> None:
    assert parse_url(url).url == asked
