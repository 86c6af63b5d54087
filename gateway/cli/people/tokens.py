"""`supaclaw token` and `supaclaw webhooks`: API tokens, and those of sources that may only trigger the agent."""

import os
import re
from functools import partial
from typing import Annotated

from gateway.cli.connections.database import require_owner, with_connection, with_database
from gateway.cli.connections.local_gateway import web_address
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, Yes, argument, confirm, flag, option, print_rows
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import PrincipalId
from gateway.domain.people.credentials import Scope, permits
from gateway.store.connection.pool import Database
from gateway.store.people import principals, tokens
from gateway.store.work import triggers
from gateway.workspace.files.paths import WorkspacePath
from gateway.workspace.instructions import SOURCE_PATTERN

COLUMNS = ("name", "scopes", "agent", "shared", "as_owner", "source", "created_at", "last_used_at")
WARNING = (
    "Anyone who has this token will be treated as you: what they send can change instructions and schedules unasked. "
    "Without --as-owner, a token can talk to the agent too, but lasting changes ask you first."
)
MEMBER_WARNING = (
    "Anyone who has this token will be treated as this member. Without --as-owner, it can only talk, without tools."
)
Name = Annotated[str, argument("A name for the token, such as the program's.", "NAME")]


def create(
    name: Name,
    scope: Annotated[list[Scope], option(f"A right: {', '.join(Scope)}; repeatable.", "SCOPE")],
    as_owner: Annotated[bool, flag("Treat messages by it as yours, or as its member's.", "--as-owner")] = False,
    agent: Annotated[str | None, option("The agent whose memory it uses (default: one of its own).", "NAME")] = None,
    shared: Annotated[bool, flag("Let it read your own memories, but never change them.", "--shared")] = False,
    folder: Annotated[str | None, option("The folder that --scope files opens (default: shared).", "DIR")] = None,
    member: Annotated[
        str | None, option("The member whose token it is, such as telegram:123 (default: you).", "CHANNEL:ID")
    ] = None,
    yes: Yes = False,
) -> None:
    """Create a token and print it. It isn't stored and can't be shown again."""
    if member is not None and (set(scope) != {Scope.CHAT} or agent is not None or shared):
        raise OwnerMustAct("a member's token can only talk: --scope chat, without --agent and --shared")
    if as_owner:
        if not permits(set(scope), Scope.CHAT):
            raise OwnerMustAct("--as-owner is for tokens that talk: add --scope chat")
        echo(WARNING if member is None else MEMBER_WARNING, error=True)
        if not yes:
            confirm("Create it?")
    if (agent is not None or shared) and not permits(set(scope), Scope.MEMORY):
        raise OwnerMustAct("--agent and --shared are for tokens that use the memory: add --scope memory")
    below = folder and str(WorkspacePath.parse(folder))

    async def work(database: Database) -> str:
        whose, new = await _whose(database, member), partial(tokens.create, database, agent=agent, folder=below)
        return (await new(whose, name, scope, as_owner=as_owner, shared=shared))[1]

    echo(with_database(work))


async def _whose(database: Database, member: str | None = None) -> PrincipalId:
    """The owner, or the member with this identity; raises `OwnerMustAct`."""
    if member is None:
        return (await database.read(require_owner)).id
    whose = await database.read(lambda conn: principals.find(conn, member))
    return required(whose, OwnerMustAct(f"there is no member {member}; `supaclaw pairing list` and the page list them"))


def list_tokens(as_json: AsJson = False) -> None:
    """List tokens, without their secrets."""
    none = "No tokens; `supaclaw token create NAME` creates one."
    print_rows(with_database(tokens.list_all), COLUMNS, as_json=as_json, none=none)


def revoke_token(name: Name) -> None:
    """Revoke a token. It stops working at once; its runs end and its schedules are paused."""
    _revoke(name, name, f"there is no token named {name}; `supaclaw token list` shows them")


def _revoke(token: str, shown: str, unknown: str) -> None:
    ended = required(with_database(lambda database: tokens.revoke(database, token)), OwnerMustAct(unknown))
    echo(f"{shown} is revoked ({ended})")


Source = Annotated[str, argument("The sender, such as ci or home-assistant: a-z, 0-9, '.', '_' and '-'.", "SOURCE")]


def register_webhook(source: Source) -> None:
    """Create a token that may only trigger for SOURCE. It isn't stored and can't be shown again."""
    if not re.fullmatch(SOURCE_PATTERN, source):
        raise OwnerMustAct(f"{source!r} cannot be a source; use up to 64 of a-z, 0-9, '.', '_' and '-', like ci-main")

    async def work(database: Database) -> str:
        name, rights = _token_of(source), [Scope.TRIGGER]
        return (await tokens.create(database, await _whose(database), name, rights, source=source))[1]

    token = with_database(work)
    web = load_early(Environment.read(os.environ), os.environ).web
    address = web.public_url or web_address(web)
    echo(f"{token}\n\ncurl {address}/trigger/{source} -H 'Authorization: Bearer {token}' -d 'This is a test.'")


def list_webhooks(as_json: AsJson = False) -> None:
    """List sources and how often each has triggered."""
    columns = ("source", "created_at", "last_used_at", "triggers")
    none = "No sources; `supaclaw webhooks register SOURCE` adds one."
    print_rows(with_connection(triggers.registered), columns, as_json=as_json, none=none)


def revoke_webhook(source: Source) -> None:
    """Revoke a source's token. It stops working at once, and its runs end."""
    _revoke(_token_of(source), source, f"{source} is not registered; `supaclaw webhooks list` shows the sources")


def _token_of(source: str) -> str:
    return f"webhook {source}"
