"""An aiohttp application on a port of this machine, while it is entered."""

from typing import Self

from aiohttp import web


class Served:
    """Serves `app`; `root` is its address without a path."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"
