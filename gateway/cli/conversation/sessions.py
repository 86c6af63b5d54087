"""`supaclaw sessions`: list, show and export the owner's conversations."""

import io
from dataclasses import replace
from typing import Annotated

from gateway.cli.connections.database import leak_guard, require_owner, with_connection, with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, Limit, Output, argument, flag, option, print_rows, save_copy
from gateway.domain.errors import OwnerMustAct, required
from gateway.flow.journal import export as exporting
from gateway.flow.journal.export import Format
from gateway.store.connection.pool import Connection, Database
from gateway.store.files import attachments
from gateway.store.people import principals
from gateway.store.transcript import conversations, messages
from gateway.store.transcript.conversations import Conversation
from gateway.store.transcript.messages import MessageRow

Id = Annotated[str, argument("The conversation's id, or its beginning.", "ID")]


def show_all(
    limit: Limit = 20,
    automation: Annotated[bool, flag("List automated runs instead of chats.", "--automation")] = False,
    as_json: AsJson = False,
) -> None:
    """List conversations, newest first. `supaclaw logs ID` shows the log of one."""

    async def recent(conn: Connection) -> list[Conversation]:
        owner = await principals.owner(conn)
        return await conversations.listed(conn, owner.id, limit, unattended=automation) if owner else []

    columns = ("id", "title", "channel", "messages", "last_at")
    print_rows(with_connection(recent), columns, as_json=as_json, none="No conversations yet.")


def show(id: Id, as_json: AsJson = False) -> None:
    """Print a conversation, with its tool calls."""
    echo(_exported(id, "json" if as_json else "markdown")[1])


def export(
    id: Id, form: Annotated[Format, option("The file's format.", None, "--format")] = "markdown", output: Output = "."
) -> None:
    """Save a conversation as a file. Never overwrites one."""
    of, text = _exported(id, form)
    save_copy(io.BytesIO(text.encode()), output, exporting.file_name(of, form))


def _exported(id: str, form: Format) -> tuple[Conversation, str]:
    """A conversation and its text, with live secrets replaced in both, whenever they were said."""

    async def read(conn: Connection) -> tuple[Conversation, list[MessageRow]]:
        unknown = OwnerMustAct(f"no conversation, or more than one, begins with {id}; `supaclaw sessions` lists them")
        of = required(await conversations.beginning(conn, (await require_owner(conn)).id, id), unknown)
        return of, await attachments.with_attachments(conn, await messages.told_until(conn, of.id))

    async def cleaned(database: Database) -> tuple[Conversation, str]:
        of, rows = await database.run(read)
        clean = await leak_guard(database)
        return replace(of, title=clean(of.title)), clean(exporting.export(of, rows, form))

    return with_database(cleaned)
