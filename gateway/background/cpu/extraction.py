"""Extracts text in the CPU process: from stored files, storing it beside them, and from web pages."""

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import structlog
from pydantic import TypeAdapter

from gateway.background.cpu.executor import Cpu, CpuJobFailed, ScratchFolder
from gateway.config.failpoints import Step
from gateway.domain.conversation.model import Highest, Reply
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.principals import Role
from gateway.domain.work.tasks import Claim, Lane
from gateway.flow.engine import Engine
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.turn.budgets import OutOfBudget, SharedBudgets
from gateway.llm.errors import ModelError
from gateway.net.errors import NetError
from gateway.net.fetch import WebPage
from gateway.store.connection.pool import Connection, Database
from gateway.store.files import files
from gateway.store.files.files import NO_SPEECH, NO_TRANSCRIPTION, FileRow
from gateway.store.work import steps, tasks
from gateway.tools import PageText
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import MAX_WRITE_BYTES, Workspace
from gateway.workspace.files.uploads import PAGES_SUFFIX, TEXT_SUFFIX

if TYPE_CHECKING:
    from gateway.ingest.output import ExtractedFile

TRANSCRIBE_SECONDS = 300.0
MAX_AUDIO_BYTES = 25 * 1024**2
"""The largest recording that transcription services accept."""
OUT_OF_BUDGET = "it isn't transcribed: the model budget is used up; it is tried again later"
_LATER = "; it is tried again later, or at once when it is sent again or read"
_EXTENSIONS = {
    **{f"audio/{kind}": kind for kind in ("ogg", "wav", "flac", "webm")},
    **{f"video/{kind}": kind for kind in ("webm", "mp4")},
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
}
"""The formats that every service takes, and what a file has to be called there."""

Transcribe: TypeAlias = Callable[[str, str, bytes], Awaitable[Reply]]
"""Transcribes a recording, by its name, its MIME type and its bytes; raises `SupaclawError`."""
HighestHeard: TypeAlias = Callable[[int], Highest]
"""The most that transcribing a recording of so many bytes may cost."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text, or the problem in one line; a `temporary` one may be gone later."""

    text: str = ""
    problem: str = ""
    temporary: bool = False
    reply: Reply | None = None
    """That of the model, if it was asked and answered."""


async def transcribe(hear: Transcribe | None, source: Path, mime: str) -> Transcript:
    """Transcribe the file, named after what it is; raises `TryAgainLater`, and `OSError` for the path."""
    if hear is None:
        return Transcript(problem=NO_TRANSCRIPTION, temporary=True)
    if (await asyncio.to_thread(source.stat)).st_size > MAX_AUDIO_BYTES:
        return Transcript(problem=f"it isn't transcribed: only files up to {MAX_AUDIO_BYTES >> 20} MB are")
    name = f"recording.{_EXTENSIONS.get(mime) or (mimetypes.guess_extension(mime) or '.bin').lstrip('.')}"
    try:
        async with asyncio.timeout(TRANSCRIBE_SECONDS):
            reply = await hear(name, mime, await asyncio.to_thread(source.read_bytes))
    except TimeoutError:
        return Transcript(problem=f"it isn't transcribed: that took too long{_LATER}", temporary=True)
    except TryAgainLater:
        raise
    except SupaclawError as exc:
        return _failure(exc, mime)
    text = reply.text.strip()
    return Transcript(text, "" if text else NO_SPEECH, reply=reply)


def _failure(error: SupaclawError, mime: str) -> Transcript:
    temporary = not isinstance(error, ModelError) or error.temporary
    advice = "" if mime in _EXTENSIONS else f"; few services take {mime}: send it as ogg, m4a, mp3 or wav"
    reason = " ".join(str(error).split())[:160]
    return Transcript(
        problem=f"it couldn't be transcribed: {reason}{_LATER if temporary else advice}", temporary=temporary
    )


MAX_PAGES = 1_000
SPARE_SECONDS = 30.0
"""Added to the reading time: the child of the CPU process ends first, so that the process stays for the next file."""
RETRY_SECONDS = 60.0
"""From a failed transcription to the next try."""

_VIEW = "view.jpg"


log = structlog.get_logger(__name__)


@dataclass(slots=True)
class TextExtraction:
    """Extracts the text of stored files, one after another."""

    engine: Engine
    workspaces: Workspaces
    cpu: Cpu
    scratch: ScratchFolder
    hear: Callable[[], Transcribe | None]
    highest: HighestHeard
    budgets: SharedBudgets

    async def read(self, run: Claim, principal: PrincipalId, id: FileId) -> bool:
        """Store the text of the file, or the reason why it can't be read; raises `RunLost`, `TryAgainLater`.

        Returns whether a later try may have more success, which is then planned.
        """
        file = await self.engine.database.read(lambda conn: files.by_id(conn, principal, id))
        assert file is not None, "files are never forgotten"
        workspace = self.workspaces.of(principal)
        try:
            async with self.scratch.new() as folder:
                derived, read = await _extracted(self.cpu, workspace, file, folder)
                derived, said = await self._transcribed(run, file, derived, folder)
                text, view = await _store_beside(workspace, file, derived, read)
        except (WorkspaceError, CpuJobFailed, ValueError) as exc:
            log.warning("file.not_read", file=str(id), error=str(exc))
            problem = _line(f"it could not be read: {exc}")
            await tasks.step(self.engine.database, run, lambda tx: files.derived(tx, file.id, problem=problem))
            return False
        if derived.problem:
            log.info("file.not_all_read", file=str(id), problem=derived.problem)
        self.engine.failpoints.reach(Step.INGEST_READ)
        derived = replace(derived, text=text, view=view)

        async def store(tx: Connection) -> None:
            await _note_derived(tx, file, derived, again=said.temporary)
            if said.reply is not None:
                await steps.model_called(tx, run, said.reply)

        await tasks.step(self.engine.database, run, store)
        return said.temporary

    async def _transcribed(
        self, run: Claim, file: FileRow, derived: "ExtractedFile", folder: Path
    ) -> tuple["ExtractedFile", Transcript]:
        """With the text of a recording, if the budgets allow one."""
        if derived.kind not in ("audio", "video"):
            return derived, Transcript()
        hear = self.hear()
        try:
            if hear is not None and self.budgets.limited:
                await self.budgets.reserve(run, self.highest(file.size), Role.OWNER, asked_before=False)
        except OutOfBudget:
            return replace(derived, problem=OUT_OF_BUDGET), Transcript(temporary=True)
        said = await transcribe(hear, folder / "source", derived.mime)
        if not said.text:
            return replace(derived, problem=said.problem), said
        await asyncio.to_thread((folder / "read" / "text.txt").write_text, said.text, "utf-8")
        return replace(derived, text="text.txt", characters=len(said.text), problem=""), said


async def _extracted(
    cpu: Cpu, workspace: Workspace, file: FileRow, folder: Path, *password: str
) -> tuple["ExtractedFile", Workspace]:
    """The extracted content, and the folder that has its files."""
    # Imported for the first file, to keep the start of the gateway fast.
    from gateway.ingest.output import MAX_MEMORY_BYTES, MAX_SECONDS, ExtractedFile
    from gateway.ingest.reading import read

    # Read a copy: a file in the workspace may become a link at any time, which the process would follow.
    source, target = folder / "source", folder / "read"
    await workspace.copy(file.path, source)
    await asyncio.to_thread(target.mkdir)
    arguments = str(source), str(target), file.name, file.mime, *password
    answer = await cpu.run(read, *arguments, seconds=MAX_SECONDS + SPARE_SECONDS, memory=MAX_MEMORY_BYTES)
    return ExtractedFile.from_json(answer), Workspace(target)


async def _store_beside(
    workspace: Workspace, file: FileRow, derived: "ExtractedFile", found: Workspace
) -> tuple[str, str]:
    """Store the text and the pages, with the file's label; return the paths of its text and its picture."""
    path, label = file.beside, await workspace.labels.of(file.path, file.sha256)
    read = range(1, min(derived.pages, MAX_PAGES) + 1)
    pages = [f"{page:03}{kind}" for page in read for kind in (".txt", ".jpg")]
    if len(read) == 1 and await found.content(pages[-1], 1) is None:
        pages = []  # the single page is the whole text
    for name in pages:
        if (page := await found.content(name, MAX_WRITE_BYTES)) is not None:
            await workspace.write(f"{path}{PAGES_SUFFIX}/{name}", page, label, unlocked=True)
    text = view = ""
    if derived.text and (words := await found.content(derived.text, MAX_WRITE_BYTES)):
        whole = words.decode("utf-8", "ignore")
        text = (await workspace.write(f"{path}{TEXT_SUFFIX}", whole, label, unlocked=True)).path
    if derived.view and (picture := await found.content(derived.view, MAX_WRITE_BYTES)):
        view = (await workspace.write(f"{path}{PAGES_SUFFIX}/{_VIEW}", picture, label, unlocked=True)).path
    return text, view


async def _note_derived(tx: Connection, file: FileRow, derived: "ExtractedFile", *, again: bool) -> None:
    note = partial(files.derived, tx, file.id, mime=derived.mime, text_path=derived.text, view_path=derived.view)
    description, problem = _line(derived.description), _line(derived.problem)
    await note(pages=min(derived.pages, MAX_PAGES), description=description, problem=problem)
    if again:
        await retry_transcription(tx, file, RETRY_SECONDS)
    if file.origin != files.OWN and (derived.text or derived.view):
        await tasks.create(
            tx, file.principal_id, "describe", Lane.AGENTS, payload={"file": str(file.id)}, dedupe=f"describe:{file.id}"
        )


async def retry_transcription(tx: Connection, file: FileRow, delay: float) -> None:
    """Plan another try, unless one is planned."""
    about, dedupe = {"file": str(file.id)}, f"transcribe:{file.id}"
    await tasks.create(tx, file.principal_id, "transcribe", Lane.AGENTS, payload=about, dedupe=dedupe, delay=delay)


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


@dataclass(frozen=True, slots=True)
class LockedFiles:
    """Reads locked files with passwords, which are used once and kept nowhere."""

    database: Database
    workspace_of: Callable[[PrincipalId], Workspace]
    cpu: Cpu
    scratch: ScratchFolder

    async def unlock(self, principal: PrincipalId, path: str, password: str) -> str:
        """Store the text of this person's file; returns what of it is still not read, in a line.

        Raises `OwnerMustAct` for a wrong password and for a file without one, `WorkspaceError`, `CpuJobFailed`.
        """
        from gateway.ingest.output import WRONG_PASSWORD

        file = await self.database.read(lambda conn: files.get(conn, principal, path))
        if file is None or not (file.locked or (file.derived_at is None and not file.mime.startswith("text/"))):
            raise OwnerMustAct(f"{path} is not a file that needs a password; `supaclaw files list` shows the files")
        workspace = self.workspace_of(principal)
        async with self.scratch.new() as folder:
            derived, found = await _extracted(self.cpu, workspace, file, folder, password)
            if WRONG_PASSWORD in derived.problem:
                raise OwnerMustAct(f"the password of {path} is wrong; nothing was read")
            text, view = await _store_beside(workspace, file, derived, found)
        read = replace(derived, text=text, view=view)
        await self.database.run(lambda tx: _note_derived(tx, file, read, again=False))
        return read.problem


@dataclass(frozen=True, slots=True)
class WebPages:
    """Extracts the text of web pages, one after another."""

    cpu: Cpu
    scratch: ScratchFolder

    async def read(self, page: WebPage) -> PageText:
        """The text of a page; raises `NetError`."""
        try:
            async with self.scratch.new() as folder:
                return await self._read(page, folder)
        except (CpuJobFailed, TryAgainLater) as error:
            text = f"The page was fetched, but could not be read: {error}"
            raise NetError("unreadable", text, foreign=True) from error  # it may quote the page

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
