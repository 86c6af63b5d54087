"""`supaclaw test`: is the database there, and does it do what is needed?"""

from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_database
from gateway.domain.errors import OwnerMustAct
from gateway.store.connection import server
from gateway.store.connection.pool import Database
from gateway.store.connection.server import ServerFacts


def test() -> None:
    """Check that the database works."""

    async def work(database: Database) -> ServerFacts:
        async with database.connection() as conn:
            await require_owner(conn)
        return await server.look(database)

    found = with_database(work)
    if found.read_only or found.denied:
        raise OwnerMustAct(
            f"the database cannot be written ({found.denied or 'read-only'}); `supaclaw doctor` says more"
        )
    echo(f"The database works: PostgreSQL {found.version}, {found.migrations} migrations, {found.round_trip_ms:.1f} ms")
