"""Reading: what a stored file says is read in the CPU process and laid beside it, at places its own path tells."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import structlog

from gateway.background.cpu import Cpu, CpuJobFailed
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.tasks import Claim, Lane
from gateway.flow.homes import Homes
from gateway.ingest.derived import Derived
from gateway.ingest.limits import MEMORY, SECONDS
from gateway.ingest.reading import read
from gateway.store import files, tasks
from gateway.store.files import FileRow
from gateway.store.pool import Connection, Database
from gateway.workspace.names import PAGES, TEXT
from gateway.workspace.paths import WorkspaceError
from gateway.workspace.tree import MAX_WRITE_BYTES, Workspace

HEARD = 25 * 1024**2
"""Bytes of audio that transcription services take."""
MOST_PAGES = 2_000
NOBODY_HEARS = (
    "what is said in it is not written down: no transcription model is configured; the owner can name one in "
    "config.json (models.transcription), such as openai/whisper-1"
)

Hear: TypeAlias = Callable[[str, bytes], Awaitable[str]]
"""What is said in audio, by its name and its bytes; raises `SupaclawError`."""

_VIEW = "view.jpg"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read: what came of it, and the folder in which it lies."""

    derived: Derived
    folder: Workspace


class Reading:
    """Reads one file after another. `scratch` is a folder of its own, emptied at the first use."""

    def __init__(
        self,
        database: Database,
        homes: Homes,
        cpu: Cpu,
        scratch: Path,
        hear: Callable[[], Hear | None],
        failpoints: Failpoints,
    ) -> None:
        self._database = database
        self._homes = homes
        self._cpu = cpu
        self._scratch = scratch
        self._hear = hear
        self._failpoints = failpoints
        self._swept = False

    async def read(self, run: Claim, principal: PrincipalId, id: FileId) -> None:
        """Note what is in the file, or why nobody can say; raises `RunLost` and `TryAgainLater`."""
        async with self._database.connection() as conn:
            file = await files.by_id(conn, principal, id)
        assert file is not None, "files are never forgotten"
        workspace = self._homes.of(principal).workspace
        try:
            async with self._folder() as folder:
                made = await self._made(workspace, file, folder)
                text, view = await _laid(workspace, file.path, made)
        except TryAgainLater:
            raise
        except (WorkspaceError, CpuJobFailed, ValueError) as exc:
            log.warning("file.not_read", file=str(id), error=str(exc))
            await self._note(run, file, Derived("unknown", "", 0, 0, "", "", "", f"it could not be read: {exc}"))
            return
        self._failpoints.reach(Step.INGEST_READ)
        await self._note(run, file, replace(made.derived, text=text, view=view))

    async def _made(self, workspace: Workspace, file: FileRow, folder: Path) -> _Read:
        # A copy: what lies in the workspace may become a link at any time, and the process would follow it.
        source, target = folder / "source", folder / "read"
        await workspace.copy(file.path, source)
        await asyncio.to_thread(target.mkdir)
        name = file.path.rpartition("/")[2]
        answer = await self._cpu.run(read, str(source), str(target), name, file.mime, seconds=SECONDS, memory=MEMORY)
        derived = Derived.from_json(answer)
        if derived.kind == "audio":
            derived = await self._heard(derived, source, target, name)
        return _Read(derived, Workspace(target))

    async def _heard(self, derived: Derived, source: Path, target: Path, name: str) -> Derived:
        hear = self._hear()
        if hear is None:
            return replace(derived, problem=NOBODY_HEARS)
        audio = await asyncio.to_thread(source.read_bytes)
        if len(audio) > HEARD:
            return replace(derived, problem=f"what is said in it is not written down: only up to {HEARD >> 20} MB are")
        try:
            said = (await hear(name, audio)).strip()
        except TryAgainLater:
            raise
        except SupaclawError as exc:
            return replace(derived, problem=f"what is said in it could not be written down: {exc}")
        if not said:
            return replace(derived, problem="nothing is said in it")
        await asyncio.to_thread((target / "text.txt").write_text, said, "utf-8")
        return replace(derived, text="text.txt", characters=len(said), problem="")

    async def _note(self, run: Claim, file: FileRow, derived: Derived) -> None:
        async def note(tx: Connection) -> None:
            await tasks.progress(tx, run)
            await files.derived(
                tx,
                file.id,
                mime=derived.mime,
                text_path=derived.text,
                view_path=derived.view,
                pages=derived.pages,
                description=_line(derived.description),
                problem=_line(derived.problem),
            )
            if derived.text or derived.view:
                await tasks.create(
                    tx,
                    file.principal_id,
                    "describe",
                    Lane.AGENTS,
                    payload={"file": str(file.id)},
                    dedupe=f"describe:{file.id}",
                )

        await self._database.run(note)

    @asynccontextmanager
    async def _folder(self) -> AsyncIterator[Path]:
        if not self._swept:
            await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)
            self._swept = True
        await asyncio.to_thread(self._scratch.mkdir, mode=0o700, parents=True, exist_ok=True)
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._scratch))
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _laid(workspace: Workspace, path: str, made: _Read) -> tuple[str, str]:
    """Put what was read beside the file; where its text and its picture are."""
    pages = [f"{page:03}{kind}" for page in range(1, made.derived.pages + 1) for kind in (".txt", ".jpg")]
    if made.derived.pages == 1 and await made.folder.content(pages[-1], 1) is None:
        pages = []  # the one page is the whole text
    for name in pages[:MOST_PAGES]:
        if (page := await made.folder.content(name, MAX_WRITE_BYTES)) is not None:
            await workspace.write(f"{path}{PAGES}/{name}", page)
    text = view = ""
    if made.derived.text and (words := await made.folder.content(made.derived.text, MAX_WRITE_BYTES)):
        whole = words.decode("utf-8", "ignore")
        text = (await workspace.write(f"{path}{TEXT}", whole)).path
    if made.derived.view and (picture := await made.folder.content(made.derived.view, MAX_WRITE_BYTES)):
        view = (await workspace.write(f"{path}{PAGES}/{_VIEW}", picture)).path
    return text, view


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
