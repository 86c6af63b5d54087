"""A server with a certificate that nobody vouches for; what it hears after the handshake is what leaked."""

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Self


class Impostor:
    """Listens on 127.0.0.1; `met` is set at the first connection, `handshakes` counts the tries."""

    def __init__(self, folder: Path) -> None:
        self.heard = b""
        self.handshakes = 0
        self.met = asyncio.Event()
        self._folder = folder
        self._port = 0
        self._server: asyncio.Server | None = None
        self._front: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        key, certificate = self._folder / "key.pem", self._folder / "certificate.pem"
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
        files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
        await asyncio.to_thread(subprocess.run, [*request, *files], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = await asyncio.start_server(self._listen, "127.0.0.1", 0, ssl=context)
        self._front = await asyncio.start_server(self._count, "127.0.0.1", 0)
        self._port = self._front.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in (self._front, self._server):
            if server is not None:
                server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _count(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """In front of the TLS server: a handshake that is refused never reaches the part behind."""
        self.handshakes += 1
        self.met.set()
        assert self._server is not None
        far_reader, far_writer = await asyncio.open_connection(*self._server.sockets[0].getsockname())
        for flow in (_pass(reader, far_writer), _pass(far_reader, writer)):
            task = asyncio.create_task(flow)
            self._links.add(task)
            task.add_done_callback(self._links.discard)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.read(4096)
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while sent := await reader.read(4096):
            writer.write(sent)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
