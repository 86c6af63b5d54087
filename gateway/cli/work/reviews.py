"""`supaclaw reviews`: the agent's questions to its owner, and the owner's answers."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Self

import typer

from gateway.agent.work.approvals import NotDecided, settle_review
from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_connection
from gateway.cli.output import AsJson, print_rows
from gateway.domain.conversation.diff import legible
from gateway.domain.json import JsonObject
from gateway.store.connection.pool import Connection
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewRow

COLUMNS = ("name", "tool", "state", "asked_at", "expires_at")
Number = Annotated[str, typer.Argument(metavar="NUMBER", help="Such as A17.")]
Comment = Annotated[str, typer.Option(metavar="TEXT", help="What the task that asks is told.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One question."""

    name: str
    tool: str
    state: str
    asked_at: datetime
    expires_at: datetime | None
    change: str
    kind: str
    decided_by: str | None
    response: JsonObject | None

    @classmethod
    def of(cls, row: ReviewRow) -> Self:
        """With its whole change, legible."""
        change, answer = legible(row.preview), row.response
        return cls(
            row.name, row.tool, row.state, row.created_at, row.expires_at, change, row.kind, row.decided_by, answer
        )


def show_all(as_json: AsJson = False) -> None:
    """List the questions waiting for the owner's answer."""

    async def read(conn: Connection) -> list[ReviewRow]:
        return await reviews.list_open(conn, (await require_owner(conn)).id, datetime.now(UTC))

    print_rows([Row.of(row) for row in with_connection(read)], COLUMNS, as_json=as_json, none="No questions.")


def show(number: Number, as_json: AsJson = False) -> None:
    """Show one question with the whole change."""

    async def read(conn: Connection) -> ReviewRow:
        owner, id = await require_owner(conn), reviews.number(number)
        row = await reviews.get(conn, id) if id is not None else None
        if row is None or row.asked_id != owner.id:
            raise NotDecided("There is no such approval for you; `supaclaw reviews list` shows the open ones.")
        return row

    _print(with_connection(read), as_json, "{0.name}: {0.tool}, {0.state}\n\n{0.change}")


def approve(number: Number, comment: Comment = "", as_json: AsJson = False) -> None:
    """Approve a change; the running gateway makes it."""
    _answer(number, comment, as_json, yes=True)


def deny(number: Number, comment: Comment = "", as_json: AsJson = False) -> None:
    """Deny a change."""
    _answer(number, comment, as_json, yes=False)


def _answer(number: str, comment: str, as_json: bool, *, yes: bool) -> None:
    async def store(conn: Connection) -> ReviewRow:
        owner = await require_owner(conn)
        return await settle_review(conn, owner.id, number, datetime.now(UTC), yes=yes, by="terminal", comment=comment)

    _print(with_connection(store), as_json, "{0.name} is {0.state}")


def _print(found: ReviewRow, as_json: bool, words: str) -> None:
    row = Row.of(found)
    print_rows([row], COLUMNS, as_json=True) if as_json else echo(words.format(row))
