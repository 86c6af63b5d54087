"""Files of the workspace: list, read, write, edit."""

import asyncio
import hashlib
import mimetypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.diff import difference
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.tools import AnyTool, Caller, Change, Effect, Labelled, Tool, ToolClass, ToolFailed, Wording
from gateway.tools import Services
from gateway.workspace.names import PAGES
from gateway.workspace.paths import WorkspaceError, WorkspacePath
from gateway.workspace.tree import MAX_WRITE_BYTES

PAGE_BYTES = 20_000

_Path = Annotated[str, Field(description="E.g. notes/ideas.md")]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ListArguments(_Arguments):
    """Arguments of list_files."""

    path: str = Field(default=".", description="E.g. notes")


class ReadArguments(_Arguments):
    """Arguments of read_file."""

    path: _Path
    offset: int = Field(default=0, ge=0, description="Byte: next_offset of the page before")
    limit: int = Field(default=PAGE_BYTES, ge=100, le=PAGE_BYTES, description="Bytes")


class WriteArguments(_Arguments):
    """Arguments of write_file."""

    path: _Path
    content: str
    mime_type: str | None = Field(default=None, max_length=127, description="If the name does not tell it")


class Edit(_Arguments):
    """One exact replacement."""

    old_text: str = Field(description="Exact; must occur once unless replace_all")
    new_text: str
    replace_all: bool = False


class EditArguments(_Arguments):
    """Arguments of edit_file."""

    path: _Path
    edits: tuple[Edit, ...] = Field(min_length=1, description="Applied in order; all or none")


@dataclass(frozen=True, slots=True)
class _Files:
    services: Services

    async def list_files(self, arguments: ListArguments, _caller: Caller) -> Labelled:
        with _tool_errors():
            listing = await self.services.workspace.listing(arguments.path)
        entries = [
            {"name": entry.name, "type": entry.kind} | ({"size": entry.size} if entry.kind == "file" else {})
            for entry in listing.entries
        ]
        left_out: JsonObject = {"left_out": listing.left_out} if listing.left_out else {}
        return Labelled({"entries": entries, **left_out}, listing.label)

    async def read_file(self, arguments: ReadArguments, _caller: Caller) -> Labelled:
        try:
            if arguments.offset:  # a later page of a binary file may look like text
                await self._page(arguments.path, ReadArguments(path=arguments.path))
            return await self._page(arguments.path, arguments)
        except ToolFailed as failure:
            if failure.error != "binary":
                raise
            return await self._extracted_page(arguments, failure)

    async def _page(self, path: str, arguments: ReadArguments) -> Labelled:
        with _tool_errors():
            page = await self.services.workspace.page(path, arguments.offset, arguments.limit)
        if page is None:
            return Labelled({"exists": False, "content": None}, Label.OWNER)
        answer: JsonObject = {"exists": True, "content": page.text, "size": page.size}
        more = {} if page.next_offset is None else {"next_offset": page.next_offset}
        return Labelled({**answer, **more}, page.label)

    async def _extracted_page(self, arguments: ReadArguments, failure: ToolFailed) -> Labelled:
        """A page of the text extracted from a binary file; sizes and offsets refer to that text.

        What went wrong with the file may be told in words of the file.
        """
        path = str(WorkspacePath.parse(arguments.path))
        read = await self.services.find_read(path)
        if read is None:
            raise failure
        if not read.text_path:
            message = f"{path} is not a text file, and no text was found in it: {read.problem or 'it has none'}."
            raise ToolFailed("binary", message, Label.UNTRUSTED)
        pages = f", {read.pages} pages, each also in {path}{PAGES}/001.txt and so on" if read.pages > 1 else ""
        found = f"text of {path}{pages}{f'; {read.problem}' if read.problem else ''}"
        page = await self._page(read.text_path, arguments)
        return Labelled({"what": found, **page.result}, Label.UNTRUSTED if read.problem else page.label)

    async def write_file(self, arguments: WriteArguments, caller: Caller) -> JsonObject:
        with _tool_errors():
            mime = arguments.mime_type or _mime(arguments.path)
            written = await self.services.workspace.write(arguments.path, arguments.content, caller.label, mime)
        return {"ok": True, "path": written.path}

    async def edit_file(self, arguments: EditArguments, caller: Caller) -> JsonObject:
        counts: list[int] = []

        def change(text: str) -> str:
            edited, replaced = apply_edits(text, arguments.edits)
            counts.extend(replaced)
            return edited

        with _tool_errors():
            written = await self.services.workspace.update(arguments.path, change, caller.label, _mime(arguments.path))
        return {"ok": True, "path": written.path, "replaced": counts}

    async def class_of_write(self, arguments: WriteArguments | EditArguments, _caller: Caller) -> ToolClass:
        """The agent's instructions last; other files are trusted as far as what is written."""
        with _tool_errors():
            instructions = await asyncio.to_thread(self.services.workspace.is_instructions, arguments.path)
        return ToolClass.PERSIST if instructions else ToolClass.WRITE

    async def lasting_write(self, arguments: WriteArguments, _caller: Caller) -> Change | None:
        """Of the agent's instructions."""
        return await self._lasting(arguments.path, lambda _text: arguments.content)

    async def lasting_edit(self, arguments: EditArguments, _caller: Caller) -> Change | None:
        """Of the agent's instructions."""
        return await self._lasting(arguments.path, lambda text: apply_edits(text, arguments.edits)[0])

    async def _lasting(self, path: str, change: Callable[[str], str]) -> Change | None:
        workspace = self.services.workspace
        with _tool_errors():
            raw = await workspace.content(path, MAX_WRITE_BYTES)
        before = (raw or b"").decode("utf-8", "replace")
        after = change(before)
        with _tool_errors():
            await asyncio.to_thread(workspace.check_locked, path, after.encode("utf-8", "replace"))
        if raw is not None and after.encode("utf-8", "replace") == raw:
            return None
        preview = await asyncio.to_thread(difference, str(WorkspacePath.parse(path)), before, after)
        return Change(preview, "" if raw is None else hashlib.sha256(raw).hexdigest())


def _mime(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "text/plain"


def apply_edits(text: str, edits: Sequence[Edit]) -> tuple[str, list[int]]:
    """Apply the edits in order; returns the text and each edit's count. Raises `ToolFailed` if one does not apply."""
    counts: list[int] = []
    for number, edit in enumerate(edits, start=1):
        found = _occurrences(text, edit, number)
        if len(text) + found * (len(edit.new_text) - len(edit.old_text)) > MAX_WRITE_BYTES:
            raise ToolFailed("too_large", f"Edit {number} would make the file larger than 5 MB; nothing was changed.")
        text = text.replace(edit.old_text, edit.new_text)
        counts.append(found)
    return text, counts


def _occurrences(text: str, edit: Edit, number: int) -> int:
    if not edit.old_text:
        raise ToolFailed("empty_old_text", f"Edit {number} has an empty old_text; give the exact text to replace.")
    found = text.count(edit.old_text)
    if found == 0:
        message = f"Edit {number}: old_text is not in the file; nothing was changed. Read the file and copy it exactly."
        raise ToolFailed("not_found", message)
    if found > 1 and not edit.replace_all:
        message = (
            f"Edit {number}: old_text occurs {found} times; nothing was changed. Add lines around it or replace_all."
        )
        raise ToolFailed("ambiguous", message)
    return found


@contextmanager
def _tool_errors() -> Iterator[None]:
    try:
        yield
    except WorkspaceError as error:
        raise ToolFailed(error.code, str(error)) from error


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The file tools of one workspace."""
    files = _Files(services)
    return (
        Tool(
            "list_files",
            "List one folder, without its subfolders.",
            ListArguments,
            files.list_files,
            kind=ToolClass.READ,
            wording=Wording("Listing files: {path}", "Listed files: {path}"),
        ),
        Tool(
            "read_file",
            "Read a text file, or the text found in a PDF, picture or other file that was sent. "
            "content is null when it does not exist; next_offset means there is more.",
            ReadArguments,
            files.read_file,
            max_result=3 * PAGE_BYTES,
            kind=ToolClass.READ,
            wording=Wording("Reading {path}", "Read {path}"),
        ),
        Tool(
            "write_file",
            "Create or overwrite a text file; folders are made as needed.",
            WriteArguments,
            files.write_file,
            Effect.IDEMPOTENT,
            kind=files.class_of_write,
            lasting=files.lasting_write,
            wording=Wording("Writing {path}", "Wrote {path}"),
        ),
        Tool(
            "edit_file",
            "Replace exact pieces of an existing text file.",
            EditArguments,
            files.edit_file,
            Effect.ONCE,
            kind=files.class_of_write,
            lasting=files.lasting_edit,
            wording=Wording("Editing {path}", "Edited {path}"),
        ),
    )
