"""A server that means harm costs a bounded amount of memory and time, and is told in one line."""

import asyncio
import gzip
import ssl
import subprocess
import zlib
from pathlib import Path

import pytest

from gateway.net import fetch
from gateway.net.addresses import Rules
from gateway.net.client import Limits, guarded
from gateway.net.errors import NetError
from tests.net import servers
from tests.net.servers import Respond, page, redirect, serving, site

BRIEF = Limits(seconds=1.0)


async def refused(respond: Respond, limits: Limits | None = None, path: str = "/") -> tuple[NetError, int]:
    """The error, and how many bytes the server could send."""
    async with serving(respond) as server:
        with pytest.raises(NetError) as error:
            await fetch.get_page(f"{server.url}{path}", server.rules, limits)
        assert "\n" not in str(error.value)
        assert str(server.port) not in str(error.value)
        return error.value, server.sent


@pytest.mark.parametrize(
    ("respond", "code"),
    [
        (servers.announced, "too_large"),
        (servers.endless(), "too_large"),
        (servers.bomb(), "too_large"),
        (servers.bomb("gzip, gzip", 2), "bad_encoding"),
        (servers.bomb("br"), "bad_encoding"),
        (servers.long_header, "bad_answer"),
        (servers.many_headers, "bad_answer"),
        (servers.nonsense, "bad_answer"),
        (servers.single_bytes, "too_slow"),
        (redirect("/"), "too_many_redirects"),
        (page(b"no", "text/plain", "404 Not Found"), "http_404"),
        (page(b"no", "text/plain", "503 Service Unavailable"), "http_503"),
        (page(b"not gzip", "text/html", "200 OK", "Content-Encoding: gzip"), "bad_encoding"),
    ],
)
async def test_it_is_told_in_one_line(respond: Respond, code: str) -> None:
    error, sent = await refused(respond)

    assert error.code == code
    assert sent < 40 * 2**20


@pytest.mark.parametrize("respond", [servers.dripping, servers.silent, servers.hints])
async def test_a_slow_one_ends_in_time(respond: Respond) -> None:
    error, _ = await refused(respond, BRIEF)

    assert (error.code, "took too long" in str(error)) == ("timeout", True)


async def test_the_loop_goes_on_meanwhile() -> None:
    """A body that never makes the client wait leaves time to everything else."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await refused(servers.single_bytes)
    ticking.cancel()

    assert ticks > 1_000


async def test_nobody_at_home() -> None:
    async with serving(servers.silent) as server:
        pass

    with pytest.raises(NetError, match="can't be reached") as error:
        await fetch.get_page(server.url, server.rules)

    assert error.value.code == "unreachable"


async def test_a_certificate_that_nobody_signed(tmp_path: Path) -> None:
    async with serving(page(b"secret"), self_signed(tmp_path)) as server:
        with pytest.raises(NetError, match="has no valid certificate") as error:
            await fetch.get_page(server.url, server.rules)

    assert (error.value.code, server.asked) == ("bad_certificate", [])


async def test_no_tls_where_https_is_asked() -> None:
    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NetError, match=r"check that it supports https") as error:
            await fetch.get_page(f"https://127.0.0.1:{port}", Rules.of(["127.0.0.1"]))

    assert error.value.code == "tls"


async def test_tls_is_for_the_name_though_the_checked_address_is_dialled(tmp_path: Path) -> None:
    context = self_signed(tmp_path, "127.0.0.1")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    async with serving(page(b"hello"), context) as server:
        found = await fetch.get_page(server.url, server.rules, trusted=trusted)

    assert (found.body, server.asked[0].headers["host"]) == (b"hello", f"127.0.0.1:{server.port}")


class TestPages:
    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    async def test_compressed_ones_are_unpacked(self, pack: object) -> None:
        assert callable(pack)
        body = b"hello " * 100_000
        async with serving(page(pack(body), "text/plain", "200 OK", "Content-Encoding: gzip")) as server:
            assert (await fetch.get_page(server.url, server.rules)).body == body

    async def test_any_client_of_the_factory_is_bounded(self) -> None:
        async with serving(servers.bomb()) as server, guarded(lambda: server.rules) as http:
            with pytest.raises(NetError, match="larger than 10 MB"):
                await http.get(server.url)

    async def test_type_charset_and_name(self) -> None:
        disposition = 'Content-Disposition: attachment; filename="R\xe9sum\xe9.pdf"'
        async with serving(
            site(
                {
                    "/a/paper%20one.pdf?x=1": page(b"%PDF", "application/pdf"),
                    "/b": page(b"x", "text/html; charset=ISO-8859-2", "200 OK"),
                    "/c": page(b"x", "application/pdf", "200 OK", disposition),
                }
            )
        ) as server:
            one, two, three = [
                await fetch.get_page(f"{server.url}{path}", server.rules)
                for path in ("/a/paper%20one.pdf?x=1", "/b", "/c")
            ]

        assert (one.name, one.mime) == ("paper one.pdf", "application/pdf")
        assert (two.charset, two.mime) == ("iso-8859-2", "text/html")
        assert three.name.endswith(".pdf")

    async def test_credentials_stay_at_their_origin(self) -> None:
        pages = {"/again": redirect("")}
        async with serving(site({"/end": page(b"end")})) as other, serving(site(pages)) as first:
            pages |= {"/": redirect("/again"), "/again": redirect(f"{other.url}/end")}
            rules = Rules.of([f"127.0.0.1:{first.port}", f"127.0.0.1:{other.port}"])
            found = await fetch.get_page(first.url, rules, headers={"X-Api-Key": "key", "Authorization": "Bearer key"})

        assert [asked.headers.get("x-api-key") for asked in first.asked] == ["key", "key"]
        assert (found.body, other.asked[0].headers.get("x-api-key")) == (b"end", None)
        assert "authorization" not in other.asked[0].headers

    async def test_cookies_do_not_outlive_a_page(self) -> None:
        async with serving(page(b"hello", "text/html", "200 OK", "Set-Cookie: id=1; Path=/")) as server:
            await fetch.get_page(server.url, server.rules)
            await fetch.get_page(server.url, server.rules)

        assert [asked.headers.get("cookie") for asked in server.asked] == [None, None]


def self_signed(folder: Path, name: str = "other.test") -> ssl.SSLContext:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    kind = "IP" if name[0].isdigit() else "DNS"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    about = ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{name}"]
    subprocess.run([*command, *about, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
