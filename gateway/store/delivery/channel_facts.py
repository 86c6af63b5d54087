"""What channels remember, by channel and name."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.store.connection.pool import Connection, Database


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """The facts of one channel, as `gateway.domain.channels.channel_facts` describes them."""

    database: Database
    channel: str

    async def load(self) -> Mapping[str, str]:
        """All of them, those that were saved longest ago first."""
        sql = "select name, value from channel_facts where channel = $1 order by saved_at, name"
        async with self.database.connection() as conn:
            return {row["name"]: row["value"] for row in await conn.fetch(sql, self.channel)}

    async def save(self, changes: Mapping[str, str | None]) -> None:
        """Store these, all or none; None removes one."""
        await self.database.run(lambda tx: self._save(tx, changes))

    async def _save(self, tx: Connection, changes: Mapping[str, str | None]) -> None:
        values = {name: value for name, value in changes.items() if value is not None}
        if gone := changes.keys() - values:
            await tx.execute(
                "delete from channel_facts where channel = $1 and name = any($2)", self.channel, list(gone)
            )
        if values:
            await tx.execute(
                """insert into channel_facts (channel, name, value)
                   select $1, name, value from unnest($2::text[], $3::text[]) fact (name, value)
                   on conflict (channel, name) do update set value = excluded.value, saved_at = excluded.saved_at""",
                self.channel,
                list(values),
                list(values.values()),
            )
