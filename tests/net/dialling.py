"""What a client really connects to: names as the test says, connections recorded and led to a server of the test."""

import asyncio
import asyncio.selector_events
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pytest

Answers = Sequence[Sequence[str]]
"""The addresses of a name: of the first lookup, the next, and so on; the last for all that follow."""


class Dialling:
    """Replaces the resolver and the connecting of the event loop."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, Answers] = {}
        self.dialled: list[str] = []
        self.looked_up: list[str] = []
        self.server = 0
        self._really, self._connect = socket.getaddrinfo, asyncio.selector_events.BaseSelectorEventLoop.sock_connect
        patch.setattr(socket, "getaddrinfo", self._lookup)
        dialling = self

        async def connect(loop: Any, sock: socket.socket, address: Any) -> None:
            dialling.dialled.append(address[0])
            if sock.family != socket.AF_INET or not dialling.server:
                raise ConnectionRefusedError("recorded")
            await dialling._connect(loop, sock, ("127.0.0.1", dialling.server))

        patch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", connect)

    def known(self, names: Mapping[str, Answers]) -> Self:
        """Start anew with these names."""
        self.names = dict(names)
        self.dialled.clear()
        self.looked_up.clear()
        return self

    def _lookup(
        self, host: Any, port: Any = None, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        name = (host.decode() if isinstance(host, bytes) else host or "").lower()
        if name not in self.names:
            return self._really(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        answers = self.names[name]
        found = answers[min(self.looked_up.count(name), len(answers) - 1)]
        self.looked_up.append(name)
        return [
            (socket.AF_INET6, type, 6, "", (each, port, 0, 0))
            if ":" in each
            else (socket.AF_INET, type, 6, "", (each, port))
            for each in found
        ]
