"""`supaclaw webhooks`: sources that may trigger the agent, each with its own token."""

import os
import re
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.database import with_connection, with_database
from gateway.cli.output import AsJson, print_rows
from gateway.cli.people.token import create_token
from gateway.cli.running import web_address
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct
from gateway.domain.people.credentials import Scope
from gateway.store.people import tokens
from gateway.store.work import triggers
from gateway.workspace.instructions import SOURCE_PATTERN

Source = Annotated[str, typer.Argument(help="The sender, such as ci or home-assistant: a-z, 0-9, '.', '_' and '-'.")]


def register(source: Source) -> None:
    """Create a token that may only trigger for SOURCE. It isn't stored and can't be shown again."""
    if not re.fullmatch(SOURCE_PATTERN, source):
        raise OwnerMustAct(f"{source!r} cannot be a source; use up to 64 of a-z, 0-9, '.', '_' and '-', like ci-main")
    token = with_database(lambda database: create_token(database, _token_of(source), [Scope.TRIGGER], source))
    web = load_early(Environment.read(os.environ), os.environ).web
    address = web.public_url or web_address(web)
    echo(f"{token}\n\ncurl {address}/trigger/{source} -H 'Authorization: Bearer {token}' -d 'This is a test.'")


def show(as_json: AsJson = False) -> None:
    """List sources and how often each has triggered."""
    columns = ("source", "created_at", "last_used_at", "triggers")
    none = "No sources; `supaclaw webhooks register NAME` adds one."
    print_rows(with_connection(triggers.registered), columns, as_json=as_json, none=none)


def revoke(source: Source) -> None:
    """Revoke a source's token. It stops working at once, and its runs end."""
    ended = with_database(lambda database: tokens.revoke(database, _token_of(source)))
    if ended is None:
        raise OwnerMustAct(f"{source} is not registered; `supaclaw webhooks list` shows what is")
    echo(f"{source} is revoked ({ended})")


def _token_of(source: str) -> str:
    return f"webhook {source}"
