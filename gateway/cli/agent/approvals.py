"""`supaclaw reviews`, `grants` and `audit`: the agent's questions, calls allowed in advance, and the record of both."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Self

import typer

from gateway.agent.work import approvals as rules
from gateway.agent.work.approvals import NotDecided, settle_review
from gateway.cli.connections.database import require_owner, with_connection
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, Limit, print_json, print_rows
from gateway.domain.conversation.diff import legible
from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import JsonObject
from gateway.store.connection.pool import Connection
from gateway.store.trust import audit, grants, reviews
from gateway.store.trust.audit import AuditRow, AuditVerdict
from gateway.store.trust.grants import GrantRow
from gateway.store.trust.reviews import ReviewRow

REVIEW_COLUMNS = ("name", "tool", "state", "asked_at", "expires_at")
Number = Annotated[str, typer.Argument(metavar="NUMBER", help="Such as A17.")]
Comment = Annotated[str, typer.Option(metavar="TEXT", help="What the task that asks is told.")]


@dataclass(frozen=True, slots=True)
class ReviewLine:
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


def list_reviews(as_json: AsJson = False) -> None:
    """List the questions waiting for the owner's answer."""

    async def read(conn: Connection) -> list[ReviewRow]:
        return await reviews.list_open(conn, (await require_owner(conn)).id, datetime.now(UTC))

    print_rows(
        [ReviewLine.of(row) for row in with_connection(read)], REVIEW_COLUMNS, as_json=as_json, none="No questions."
    )


def show_review(number: Number, as_json: AsJson = False) -> None:
    """Show one question with the whole change."""

    async def read(conn: Connection) -> ReviewRow:
        owner, id = await require_owner(conn), reviews.number(number)
        row = await reviews.get(conn, id) if id is not None else None
        if row is None or row.asked_id != owner.id:
            raise NotDecided("There is no such approval for you; `supaclaw reviews list` shows the open ones.")
        return row

    _print_review(with_connection(read), as_json, "{0.name}: {0.tool}, {0.state}\n\n{0.change}")


def approve(number: Number, comment: Comment = "", as_json: AsJson = False) -> None:
    """Approve a change; the running gateway makes it."""
    _decide(number, comment, as_json, yes=True)


def deny(number: Number, comment: Comment = "", as_json: AsJson = False) -> None:
    """Deny a change."""
    _decide(number, comment, as_json, yes=False)


def _decide(number: str, comment: str, as_json: bool, *, yes: bool) -> None:
    async def store(conn: Connection) -> ReviewRow:
        owner = await require_owner(conn)
        return await settle_review(conn, owner.id, number, datetime.now(UTC), yes=yes, by="terminal", comment=comment)

    _print_review(with_connection(store), as_json, "{0.name} is {0.state}")


def _print_review(found: ReviewRow, as_json: bool, words: str) -> None:
    row = ReviewLine.of(found)
    print_rows([row], REVIEW_COLUMNS, as_json=True) if as_json else echo(words.format(row))


GRANT_COLUMNS = ("name", "tool", "times_left", "expires_at", "allows")


@dataclass(frozen=True, slots=True)
class GrantLine:
    """One grant."""

    name: str
    tool: str
    times_left: int
    expires_at: datetime
    allows: str
    arguments: object


def list_grants(as_json: AsJson = False) -> None:
    """List your grants."""

    async def read(conn: Connection) -> list[GrantRow]:
        return await grants.live(conn, (await require_owner(conn)).id, datetime.now(UTC))

    rows = [
        GrantLine(row.name, row.tool, row.times_left, row.expires_at, rules.grant_line(row), row.arguments)
        for row in with_connection(read)
    ]
    print_rows(rows, GRANT_COLUMNS, as_json=as_json, none=rules.NO_GRANTS)


def give_grant(
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="Such as A17.")],
    terms: Annotated[list[str], typer.Argument(metavar="TERMS", help="Such as: 5 24h amount<=50 total 200.")],
) -> None:
    """Allow a request's call in advance, with a count and a time."""

    async def store(conn: Connection) -> GrantRow:
        owner, now = await require_owner(conn), datetime.now(UTC)
        return await rules.give_grant(conn, owner.id, number, rules.parse_terms(" ".join(terms), now), by="terminal")

    echo(f"Allowed. {rules.grant_line(with_connection(store))}")


def revoke_grant(number: Annotated[str, typer.Argument(metavar="NUMBER", help="Such as G3.")]) -> None:
    """Revoke a grant."""

    async def end(conn: Connection) -> GrantRow:
        owner = await require_owner(conn)
        return await rules.revoke_grant(conn, owner.id, number, datetime.now(UTC), by="terminal")

    echo(f"{with_connection(end).name} is revoked.")


AUDIT_COLUMNS = ("seq", "at", "event", "subject", "principal")
Head = Annotated[str, typer.Option(metavar="HASH", help="A hash noted earlier, which must still be in the trail.")]


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One act."""

    seq: int
    at: datetime
    event: str
    subject: str
    principal: str
    actor: str
    detail: str
    hash: str

    @classmethod
    def of(cls, row: AuditRow) -> Self:
        """Hashes in hexadecimal."""
        whose = str(row.principal_id) if row.principal_id else ""
        return cls(row.seq, row.at, row.event, row.subject, whose, row.actor.hex(), row.detail.hex(), row.hash.hex())


def list_audit(limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the newest approvals, grants, sign-ins and permission changes."""
    rows = with_connection(lambda conn: audit.newest(conn, limit))
    print_rows(
        [AuditLine.of(row) for row in rows], AUDIT_COLUMNS, as_json=as_json, none="Nothing has been recorded yet."
    )


def verify_audit(head: Head = "", as_json: AsJson = False) -> None:
    """Check that no entry was changed, removed or inserted."""

    async def check(conn: Connection) -> tuple[AuditVerdict, bool]:
        return await audit.verify(conn), not head or await audit.holds(conn, head)

    verdict, held = with_connection(check)
    broken = verdict.broken or ("" if held else f"no row has the hash {head}")
    if as_json:
        print_json({"rows": verdict.rows, "head": verdict.head, "broken": broken})
    else:
        echo(f"{verdict.rows} entries in order; the newest hash is {verdict.head or 'none yet'}")
    if broken:
        raise OwnerMustAct(f"the audit trail is broken: {broken}; compare it with a backup")
