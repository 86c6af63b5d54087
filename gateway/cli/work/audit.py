"""`supaclaw audit`: who allowed, changed and used what, and whether that record is whole."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self

import typer

from gateway.cli.console import echo
from gateway.cli.database import with_connection
from gateway.cli.output import AsJson, Limit, print_json, print_rows
from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Connection
from gateway.store.trust import audit
from gateway.store.trust.audit import AuditRow, AuditVerdict

COLUMNS = ("seq", "at", "event", "subject", "principal")
Head = Annotated[str, typer.Option(metavar="HASH", help="A hash noted earlier, which must still be in the trail.")]


@dataclass(frozen=True, slots=True)
class Row:
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


def show_all(limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the newest approvals, grants, sign-ins and permission changes."""
    rows = with_connection(lambda conn: audit.newest(conn, limit))
    print_rows([Row.of(row) for row in rows], COLUMNS, as_json=as_json, none="Nothing has been recorded yet.")


def verify(head: Head = "", as_json: AsJson = False) -> None:
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
