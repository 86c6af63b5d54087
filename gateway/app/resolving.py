"""config.json with its secrets, for commands: the database is asked only if a reference needs it."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from gateway.app.database import has_database, open_database
from gateway.config.environment import Environment
from gateway.config.load import Lookup, load_early, secrets_unavailable
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.flow.secrets.live import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.secrets.leaks import Leaks
from gateway.store.connection.pool import Database
from gateway.store.migrate import check_schema
from gateway.store.people import principals


@dataclass(frozen=True)
class StoredSecrets:
    """A lookup that opens the database for the first name, and reads all secrets then."""

    environment: Environment
    environ: Mapping[str, str] = field(repr=False)

    def __call__(self, name: str) -> str:
        """Raises `ConfigError` for an unknown name, and whatever keeps the database from being read."""
        return self._lookup(name)

    @cached_property
    def _lookup(self) -> Lookup:
        config = load_early(self.environment, self.environ)
        if not has_database(self.environment, config):
            return secrets_unavailable
        with ThreadPoolExecutor(1) as apart:  # the caller may be a coroutine
            return apart.submit(lambda: asyncio.run(self._read(config))).result()

    async def _read(self, config: Config) -> Lookup:
        async with open_database(self.environment, config) as database:
            stored = await look(database, self.environment, self.environ)
            return stored.lookup if stored else secrets_unavailable


async def look(database: Database, environment: Environment, environ: Mapping[str, str]) -> LiveSecrets | None:
    """All secrets as they are now; None before the first start."""
    async with database.connection() as conn:
        owner = await principals.owner(conn)
    if owner is None:
        return None
    stored = LiveSecrets(Vault(database, environment.data, environ), owner.id, environ)
    await stored.look()
    return stored


async def leak_guard(
    database: Database, environment: Environment, environ: Mapping[str, str]
) -> Callable[[str], str] | None:
    """Takes stored secrets out of a text; None if nothing that can be opened is stored."""
    leaks = Leaks()
    with suppress(OwnerMustAct):  # a schema of before, which the upgrade that follows ends
        await check_schema(database)
        stored = await Vault(database, environment.data, environ).opened()
        leaks.learn({each.value: f"${{secret:{each.row.facts.name}}}" for each in stored if each.value})
        return (lambda text: leaks.clean(text)[0]) if stored else None
    return None
