"""Checks of the secrets: they open, their master key is stored elsewhere, and no value silently hides another."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Literal

from gateway.app.checks.context import CheckContext, fail, ok, warn
from gateway.app.storage.database import has_database, open_database
from gateway.app.storage.offline import StoredSecrets, stored_secrets
from gateway.config.data.keys import has_master_key, read_keyring
from gateway.config.environment import Environment
from gateway.config.load import Lookup, keep_reference, load_early
from gateway.domain.errors import SupaclawError
from gateway.domain.health import Finding
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.store.embedded.postgres import EmbeddedPostgres

_KEEP = "`supaclaw secrets confirm` shows the recovery key; without it, no backup can restore the secrets"
_HALF = "`supaclaw secrets rotate --master` goes on with it"


def lookup_if_running(environment: Environment, environ: Mapping[str, str]) -> Lookup:
    """A lookup of secrets in a running database; never starts one."""
    return StoredSecrets(environment, environ) if database_state(environment, environ) != "stopped" else keep_reference


def check_secrets(context: CheckContext) -> Iterator[Finding]:
    """Check the stored secrets and their key. Yields nothing before the first start."""
    environment, environ = context.environment, context.environ
    state = database_state(environment, environ)
    if state == "stopped" and has_master_key(environment.data, environ):
        yield ok("not looked at: the database is not running")
    elif state == "runs":
        try:
            yield from asyncio.run(_look(environment, environ))
        except SupaclawError:
            yield warn("not looked at", "see the check of the database")


async def _look(environment: Environment, environ: Mapping[str, str]) -> list[Finding]:
    async with open_database(environment, load_early(environment, environ)) as database:
        secrets = await stored_secrets(database, environment, environ)
        if secrets is None:
            return []
        found = [*_findings_of(secrets)]
        keys = read_keyring(environment.data, environ).keys
        if secrets.stored and keys and not await secrets.key_kept():
            found.append(warn("the recovery key isn't confirmed as kept elsewhere", _KEEP))
        if len(keys) > 1:
            found.append(warn("a change of the master key was interrupted", _HALF))
        return found


def _findings_of(secrets: LiveSecrets) -> Iterator[Finding]:
    for problem in sorted({each.problem for each in secrets.stored} - {""}):
        yield fail(*problem.split("; ", 1))
    for each in secrets.stored:
        if cover := secrets.hidden_by(each.row.facts):
            text = f"the shared secret {each.row.facts.name} is hidden by {cover}"
            yield warn(text, "remove one of the two, unless you mean it")
    yield ok(f"{len(secrets.stored)} stored")


def database_state(environment: Environment, environ: Mapping[str, str]) -> Literal["none", "stopped", "runs"]:
    """The state of the database for checks; "none" also if config.json is invalid."""
    try:
        config = load_early(environment, environ)
    except SupaclawError:
        return "none"
    if not has_database(environment, config):
        return "none"
    return "runs" if config.database.url or EmbeddedPostgres(environment.data).is_running else "stopped"
