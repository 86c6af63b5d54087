"""Files of the workspace: list, search, read, write, edit, move and delete them."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter

from gateway.domain.conversation.diff import difference
from gateway.domain.conversation.model import Image
from gateway.domain.conversation.tools import AnyTool, Caller, Change, Effect, Labelled, ToolClass, ToolFailed
from gateway.domain.errors import SupaclawError
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.tools import Services, declared, file_picture, tool
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath
from gateway.workspace.files.search import FoundLines, fits_glob
from gateway.workspace.files.tree import MAX_LISTED, MAX_WRITE_BYTES
from gateway.workspace.files.uploads import PAGES_SUFFIX, mime_of

PAGE_BYTES = 20_000
SHOWN = "its picture is shown until you have answered"
READ_OUT = (".pdf", ".rtf", ".eml", ".mht", ".mhtml")
"""Files that may be plain text as they are, which nobody reads so."""
MAX_FOUND = 50
MAX_FILE_BYTES = 100 * 1024**2
"""The largest file that a checkpoint holds."""

_Path = Annotated[str, Field(description="E.g. notes/ideas.md")]


class Edit(BaseModel, extra="forbid", frozen=True):
    """One exact replacement."""

    old_text: str = Field(description="Exact; must occur once unless replace_all")
    new_text: str
    replace_all: bool = False


def apply_edits(text: str, edits: Sequence[Edit]) -> tuple[str, list[int]]:
    """Apply the edits in order; returns the text and each edit's count. Raises `ToolFailed` if one does not apply."""
    counts: list[int] = []
    for number, edit in enumerate(edits, start=1):
        found = _occurrences(text, edit, number)
        if len(text) + found * (len(edit.new_text) - len(edit.old_text)) > MAX_WRITE_BYTES:
            message = f"Edit {number} would make the file larger than 5 MB; nothing was changed."
            raise ToolFailed.own("too_large", message)
        text = text.replace(edit.old_text, edit.new_text)
        counts.append(found)
    return text, counts


def _occurrences(text: str, edit: Edit, number: int) -> int:
    if not edit.old_text:
        raise ToolFailed.own("empty_old_text", f"Edit {number} has an empty old_text; give the exact text to replace.")
    found = text.count(edit.old_text)
    if found == 0:
        message = f"Edit {number}: old_text is not in the file; nothing was changed. Read the file and copy it exactly."
        raise ToolFailed.own("not_found", message)
    if found > 1 and not edit.replace_all:
        message = (
            f"Edit {number}: old_text occurs {found} times; nothing was changed. Add lines around it or replace_all."
        )
        raise ToolFailed.own("ambiguous", message)
    return found


class _Arguments(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """Blanks are kept: they count in texts of files."""


class ListArguments(_Arguments):
    """Arguments of list_files."""

    path: str = Field(default=".", description="E.g. notes")

    glob: str | None = Field(default=None, max_length=200, description="E.g. *.md")
    depth: int = Field(default=1, ge=1, le=8, description="Levels of folders")


class SearchArguments(_Arguments):
    """Arguments of search_files."""

    pattern: str = Field(min_length=1, max_length=500)
    path: str = Field(default=".", description="File or folder")
    glob: str | None = Field(default=None, max_length=200, description="E.g. *.md")
    regex: bool = False


class MoveArguments(_Arguments):
    """Arguments of move_file."""

    path: _Path
    to: str


class DeleteArguments(_Arguments):
    """Arguments of delete_file."""

    path: _Path


class ReadArguments(_Arguments):
    """Arguments of read_file."""

    path: _Path
    offset: int = Field(default=0, ge=0, description="Byte: next_offset of the page before")
    limit: int = Field(default=PAGE_BYTES, ge=100, le=PAGE_BYTES, description="Bytes")
    page: int | None = Field(default=None, ge=1, description="Of a PDF or scan: its text, and a picture of it")


class WriteArguments(_Arguments):
    """Arguments of write_file."""

    path: _Path
    content: str
    mime_type: str | None = Field(default=None, max_length=127, description="If the name does not tell it")


class EditArguments(_Arguments):
    """Arguments of edit_file."""

    path: _Path
    edits: tuple[Edit, ...] = Field(min_length=1, description="Applied in order; all or none")


@dataclass(frozen=True, slots=True)
class _Files:
    services: Services

    @tool("Listing files: {path}", "Listed files: {path}", ToolClass.READ)
    async def list_files(self, arguments: ListArguments, _caller: Caller) -> Labelled:
        """List a folder; with depth also what is below it."""
        top = WorkspacePath.parse(arguments.path) if arguments.depth > 1 else None
        entries: list[JsonObject] = []
        waiting, left_out, label = [(arguments.path, "", 1)], 0, Label.OWNER
        while waiting and len(entries) < MAX_LISTED:
            path, before, depth = waiting.pop(0)
            listing = await self.services.workspace.listing(path)
            left_out, label = left_out + listing.left_out, max(label, listing.label)
            for entry in listing.entries:
                name = f"{before}{entry.name}"
                if top is not None and entry.kind == "folder" and depth < arguments.depth:
                    waiting.append((f"{top}/{name}", f"{name}/", depth + 1))
                if not arguments.glob or fits_glob(name, arguments.glob):
                    size: JsonObject = {"size": entry.size} if entry.kind == "file" else {}
                    entries.append({"name": name, "type": entry.kind, **size})
        left_out += max(0, len(entries) - MAX_LISTED)
        more: JsonObject = {"left_out": left_out} if left_out else {}
        folders: JsonObject = {"folders_left_out": len(waiting)} if waiting else {}
        return Labelled({"entries": entries[:MAX_LISTED], **more, **folders}, label)

    @tool("Reading {path}", "Read {path}", ToolClass.READ, max_result=3 * PAGE_BYTES)
    async def read_file(self, arguments: ReadArguments, _caller: Caller) -> Labelled:
        """Read a text file, or the text found in a PDF, picture or other file; page shows one page.

        content is null when it does not exist; next_offset means there is more.
        """
        if arguments.page is not None:
            return await self._pictured_page(arguments, arguments.page)
        try:
            if arguments.offset:  # a later page of a binary file may look like text
                await self._page(arguments.path, ReadArguments(path=arguments.path))
            return await self._page(arguments.path, arguments)
        except ToolFailed as failure:
            if failure.error != "binary":
                raise
            return await self._extracted_page(arguments, failure)

    async def _page(self, path: str, arguments: ReadArguments) -> Labelled:
        try:
            page = await self.services.workspace.page(path, arguments.offset, arguments.limit)
        except WorkspaceError as error:
            raise ToolFailed.own(error.code, str(error)) from error
        if page is None:
            return Labelled({"exists": False, "content": None}, Label.OWNER)
        if path.lower().endswith(READ_OUT):
            raise ToolFailed("binary", f"{path} is not a text file.", page.label)
        more: JsonObject = {} if page.next_offset is None else {"next_offset": page.next_offset}
        return Labelled({"exists": True, "content": page.text, "size": page.size, **more}, page.label)

    async def _extracted_page(self, arguments: ReadArguments, failure: ToolFailed) -> Labelled:
        """A page of the text extracted from a binary file; sizes and offsets refer to that text.

        The text of a problem may quote the file, so it is untrusted.
        """
        path = str(WorkspacePath.parse(arguments.path))
        read = await self.services.find_read(path)
        shown = await self._picture(read.view_path if read else path) if mime_of(path).startswith("image/") else ()
        if shown and not (read and read.text_path):
            return Labelled({"what": f"the picture {path}; {SHOWN}"}, Label.UNTRUSTED, shown)
        if read is None:
            raise ToolFailed(failure.error, f"{failure.message} By its name it is {mime_of(path)}.", failure.label)
        if not read.text_path:
            message = f"{path} is not a text file, and no text was found in it: {read.problem or 'it has none'}."
            raise ToolFailed("binary", message, Label.UNTRUSTED)
        each = f"{read.beside or path}{PAGES_SUFFIX}/001.txt"
        pages = f", {read.pages} pages, each also in {each} and so on" if read.pages > 1 else ""
        found = f"text of {path}{pages}{f'; {read.problem}' if read.problem else ''}{f'; {SHOWN}' if shown else ''}"
        page = await self._page(read.text_path, arguments)
        return Labelled({"what": found, **page.result}, Label.UNTRUSTED if read.problem else page.label, shown)

    async def _pictured_page(self, arguments: ReadArguments, number: int) -> Labelled:
        """The text and the picture of one page, which reading the file has made."""
        path = str(WorkspacePath.parse(arguments.path))
        read = await self.services.find_read(path)
        page = f"{(read and read.beside) or path}{PAGES_SUFFIX}/{number:03}"
        if not (shown := await self._picture(f"{page}.jpg")):
            raise ToolFailed.own("no_page", f"There is no picture of page {number} of {path}; read it without page.")
        text = await self._page(f"{page}.txt", arguments)
        return Labelled({"what": f"page {number} of {path}; {SHOWN}", **text.result}, Label.UNTRUSTED, shown)

    async def _picture(self, path: str) -> tuple[Image, ...]:
        """A picture that the gateway made of a page or file; others might be refused by providers."""
        return await file_picture(self.services.workspace, path) if PAGES_SUFFIX in path else ()

    async def class_of_write(self, arguments: WriteArguments | EditArguments, _caller: Caller) -> ToolClass:
        """Persistent for the agent's instructions; other files get the label of what is written."""
        instructions = await asyncio.to_thread(self.services.workspace.is_instructions, arguments.path)
        return ToolClass.PERSIST if instructions else ToolClass.WRITE

    async def lasting_write(self, arguments: WriteArguments, _caller: Caller) -> Change | None:
        """The difference that a write makes; None if it makes none."""
        return await self._lasting(arguments.path, lambda _text: arguments.content)

    async def lasting_edit(self, arguments: EditArguments, _caller: Caller) -> Change | None:
        """The difference that the edits make; None if they make none."""
        return await self._lasting(arguments.path, lambda text: apply_edits(text, arguments.edits)[0])

    async def _lasting(self, path: str, change: Callable[[str], str]) -> Change | None:
        workspace = self.services.workspace
        raw = await workspace.content(path, MAX_WRITE_BYTES)
        before = (raw or b"").decode("utf-8", "replace")
        after = change(before)
        await asyncio.to_thread(workspace.check_locked, path, after.encode("utf-8", "replace"))
        if raw is not None and after.encode("utf-8", "replace") == raw:
            return None
        preview = await asyncio.to_thread(difference, str(WorkspacePath.parse(path)), before, after)
        return Change(preview, "" if raw is None else hashlib.sha256(raw).hexdigest())

    @tool("Writing {path}", "Wrote {path}", class_of_write, lasting_write, effect=Effect.IDEMPOTENT)
    async def write_file(self, arguments: WriteArguments, caller: Caller) -> Labelled:
        """Create or overwrite a text file; folders are made as needed."""
        mime = arguments.mime_type or mime_of(arguments.path)
        written = await self.services.workspace.write(arguments.path, arguments.content, caller.label, mime)
        return Labelled.own({"ok": True, "path": written.path})

    @tool("Editing {path}", "Edited {path}", class_of_write, lasting_edit, effect=Effect.LOCAL)
    async def edit_file(self, arguments: EditArguments, caller: Caller) -> Labelled:
        """Replace exact pieces of an existing text file."""
        counts: list[int] = []

        def change(text: str) -> str:
            edited, replaced = apply_edits(text, arguments.edits)
            counts.extend(replaced)
            return edited

        written = await self.services.workspace.update(arguments.path, change, caller.label, mime_of(arguments.path))
        return Labelled.own({"ok": True, "path": written.path, "replaced": counts})

    async def class_of_removal(self, arguments: MoveArguments | DeleteArguments, _caller: Caller) -> ToolClass:
        """Irreversible if a deletion can't be undone; persistent where the agent's instructions are or go.

        A move overwrites nothing, so moving back undoes it.
        """
        workspace, paths = self.services.workspace, [*arguments.model_dump().values()]
        instructions = [await asyncio.to_thread(workspace.is_instructions, path) for path in paths]
        size = await asyncio.to_thread(workspace.size, arguments.path)
        restorable = self.services.keep is not None and size <= MAX_FILE_BYTES
        if isinstance(arguments, DeleteArguments) and not restorable:
            return ToolClass.IRREVERSIBLE
        return ToolClass.PERSIST if any(instructions) else ToolClass.WRITE

    async def lasting_removal(self, arguments: MoveArguments | DeleteArguments, _caller: Caller) -> Change | None:
        """The move or deletion, bound to the file's content now."""
        await asyncio.to_thread(self.services.workspace.check_locked, arguments.path, b"")
        raw = await self.services.workspace.content(arguments.path, MAX_WRITE_BYTES)
        if raw is None:
            return None
        path = WorkspacePath.parse(arguments.path)
        what = f"Move {path} to {arguments.to}" if isinstance(arguments, MoveArguments) else f"Delete {path}"
        return Change(what, hashlib.sha256(raw).hexdigest())

    @tool("Moving {path}", "Moved {path} to {to}", class_of_removal, lasting_removal, effect=Effect.LOCAL, timeout=120)
    async def move_file(self, arguments: MoveArguments, caller: Caller) -> Labelled:
        """Move or rename a file; never overwrites one."""
        await self._checkpoint("before a move")
        written = await self.services.workspace.move(arguments.path, arguments.to, caller.label, mime_of(arguments.to))
        return Labelled.own({"ok": True, "path": written.path})

    @tool("Deleting {path}", "Deleted {path}", class_of_removal, lasting_removal, effect=Effect.IDEMPOTENT, timeout=120)
    async def delete_file(self, arguments: DeleteArguments, caller: Caller) -> Labelled:
        """Delete a file; the user can restore it."""
        await asyncio.to_thread(self.services.workspace.size, arguments.path)
        await asyncio.to_thread(self.services.workspace.check_locked, arguments.path, b"")
        await self._checkpoint("before a deletion")
        await self.services.workspace.remove(arguments.path, caller.label)
        return Labelled.own({"ok": True})

    async def _checkpoint(self, reason: str) -> None:
        """Make a checkpoint, so that the next step can be undone; without checkpoints a person has approved it."""
        if self.services.keep is not None:
            try:
                await self.services.keep(reason)
            except SupaclawError as error:
                reason = f"Nothing was done, for it could not be undone: {error}"
                raise ToolFailed.own("no_checkpoint", reason) from error

    @tool("Searching files: {pattern}", "Searched files: {pattern}", ToolClass.READ, max_result=PAGE_BYTES)
    async def search_files(self, arguments: SearchArguments, _caller: Caller) -> Labelled:
        """Find lines in text files by a text or a regex."""
        assert self.services.find is not None, "the tool is only there with it"
        workspace, wanted = self.services.workspace, (arguments.path, arguments.pattern, arguments.glob)
        try:
            answer = await self.services.find(str(workspace.root), *wanted, MAX_FOUND, arguments.regex)
            found = TypeAdapter(FoundLines).validate_python(answer)
        except SupaclawError as error:
            raise ToolFailed.own("refused", f"{error}; try a simpler pattern or a smaller folder.") from error
        label = Label.OWNER
        for path, sha256 in found.files.items():
            names = await workspace.labels.of_names("/".join(WorkspacePath.parse(path).parents) or ".")
            label = max(label, names, await workspace.labels.of(path, sha256))
        return Labelled({"matches": found.matches} | ({"more": True} if found.more else {}), label)


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The file tools of one workspace."""
    return tuple(each for each in declared(_Files(services)) if services.find or each.name != "search_files")
