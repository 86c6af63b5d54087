"""`supaclaw approvals`, `grants` and `audit`: approval requests, calls allowed in advance, and the audit trail."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

from gateway.agent.work import approvals as rules
from gateway.agent.work.approvals import settle_review
from gateway.cli.connections.database import with_connection, with_owner
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, Limit, argument, option, print_result, print_rows
from gateway.domain.conversation.diff import legible
from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Connection
from gateway.store.trust import audit, grants, reviews
from gateway.store.trust.audit import AuditVerdict
from gateway.store.trust.reviews import ReviewRow

REVIEW_COLUMNS = ("name", "tool", "state", "asked_at", "expires_at")
Number = Annotated[str, argument("Such as A17.", "NUMBER")]
Comment = Annotated[str, option("A comment for the task that asks.", "TEXT")]


def list_reviews(as_json: AsJson = False) -> None:
    """List the calls and questions that wait for your answer."""
    rows = with_owner(lambda conn, owner: reviews.list_open(conn, owner, datetime.now(UTC)))
    print_rows([_review_facts(row) for row in rows], REVIEW_COLUMNS, as_json=as_json, none="Nothing waits for you.")


def show_review(number: Number, as_json: AsJson = False) -> None:
    """Show one with the whole change."""
    row = with_owner(lambda conn, owner: rules.own_question(conn, owner, number))
    _print_review(row, as_json, "{name}: {tool}, {state}\n\n{change}")


def approve(number: Number, comment: Comment = "", as_json: AsJson = False) -> None:
    """Approve a call; the running gateway makes it."""
    _decide(number, comment, as_json, yes=True)


def deny(number: Number, comment: Comment = "", as_json: AsJson = False) -> None:
    """Deny a call."""
    _decide(number, comment, as_json, yes=False)


def _decide(number: str, comment: str, as_json: bool, *, yes: bool) -> None:
    now = datetime.now(UTC)
    row = with_owner(lambda tx, owner: settle_review(tx, owner, number, now, yes=yes, by="terminal", comment=comment))
    _print_review(row, as_json, "{name} is {state}")


def _print_review(row: ReviewRow, as_json: bool, words: str) -> None:
    facts = _review_facts(row)
    print_result([facts], words.format(**facts), as_json=as_json)


def _review_facts(row: ReviewRow) -> Mapping[str, object]:
    same = {key: getattr(row, key) for key in ("name", "tool", "state", "expires_at", "kind", "decided_by", "response")}
    return {**same, "asked_at": row.created_at, "change": legible(row.preview)}


GRANT_COLUMNS = ("name", "tool", "times_left", "expires_at", "allows")


def list_grants(as_json: AsJson = False) -> None:
    """List the calls that you allowed in advance."""
    rows = [
        {name: getattr(row, name) for name in ("name", "tool", "times_left", "expires_at")}
        | {"allows": rules.grant_line(row), "arguments": row.arguments}
        for row in with_owner(lambda conn, owner: grants.live(conn, owner, datetime.now(UTC)))
    ]
    print_rows(rows, GRANT_COLUMNS, as_json=as_json, none=rules.NO_GRANTS)


def give_grant(
    number: Annotated[str, argument("Such as A17.", "NUMBER")],
    terms: Annotated[list[str], argument("Such as: 5 24h amount<=50 total 200.", "TERMS")],
) -> None:
    """Allow a call in advance, with a count and a time."""
    parsed = rules.parse_terms(" ".join(terms), datetime.now(UTC))
    grant = with_owner(lambda conn, owner: rules.give_grant(conn, owner, number, parsed, by="terminal"))
    echo(f"Allowed. {rules.grant_line(grant)}")


def revoke_grant(number: Annotated[str, argument("Such as G3.", "NUMBER")]) -> None:
    """Revoke a grant."""
    grant = with_owner(lambda tx, owner: rules.revoke_grant(tx, owner, number, datetime.now(UTC), by="terminal"))
    echo(f"{grant.name} is revoked.")


AUDIT_COLUMNS = ("seq", "at", "event", "subject", "principal")
Head = Annotated[str, option("A hash that you noted earlier; the trail must still hold it.", "HASH")]


def list_audit(limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the newest approvals, grants, sign-ins and permission changes."""
    facts = [
        {name: getattr(row, name) for name in ("seq", "at", "event", "subject")}
        | {"principal": str(row.principal_id or "")}
        | {name: getattr(row, name).hex() for name in ("actor", "detail", "hash")}
        for row in with_connection(lambda conn: audit.newest(conn, limit))
    ]
    print_rows(facts, AUDIT_COLUMNS, as_json=as_json, none="Nothing has been recorded yet.")


def verify_audit(head: Head = "", as_json: AsJson = False) -> None:
    """Check that no entry was changed, removed or inserted."""

    async def check(conn: Connection) -> tuple[AuditVerdict, bool]:
        return await audit.verify(conn), not head or await audit.holds(conn, head)

    verdict, held = with_connection(check)
    broken = verdict.broken or ("" if held else f"no row has the hash {head}")
    text = f"{verdict.rows} entries in order; the newest hash is {verdict.head or 'none yet'}"
    print_result({"rows": verdict.rows, "head": verdict.head, "broken": broken}, text, as_json=as_json)
    if broken:
        raise OwnerMustAct(f"the audit trail is broken: {broken}; compare it with a backup")
