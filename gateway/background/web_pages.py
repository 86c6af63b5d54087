"""Web pages as text: read in the CPU process, in a jail, as any file from elsewhere."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from gateway.background.cpu import Cpu, CpuJobFailed
from gateway.background.extraction import SPARE_SECONDS
from gateway.domain.errors import TryAgainLater
from gateway.net.errors import NetError
from gateway.net.fetch import WebPage
from gateway.tools import PageText


@dataclass(frozen=True, slots=True)
class WebPages:
    """Reads one page after another; `scratch` is a folder of its own."""

    cpu: Cpu
    scratch: Path

    async def read(self, page: WebPage) -> PageText:
        """Raises `NetError`."""
        folder = await asyncio.to_thread(self._folder)
        try:
            return await self._read(page, folder)
        except (CpuJobFailed, TryAgainLater) as error:
            raise NetError("unreadable", f"The page was fetched, but could not be read: {error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _read(self, page: WebPage, folder: Path) -> PageText:
        from gateway.ingest import web_page
        from gateway.ingest.output import MAX_MEMORY_BYTES

        source, target = folder / "source", folder / "read"
        await asyncio.to_thread(source.write_bytes, page.body)
        await asyncio.to_thread(target.mkdir)
        arguments = str(source), str(target), page.url, page.mime, page.charset, page.name
        answer = await self.cpu.run(
            web_page.read, *arguments, seconds=web_page.SECONDS + SPARE_SECONDS, memory=MAX_MEMORY_BYTES
        )
        text = await asyncio.to_thread((target / "text.txt").read_text, "utf-8")
        return TypeAdapter(PageText).validate_python(
            {**answer, "url": page.url, "text": text} if isinstance(answer, dict) else {}
        )

    def _folder(self) -> Path:
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.scratch))
