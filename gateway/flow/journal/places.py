"""Places: the journal file of each address."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from cachetools import LRUCache

from gateway.domain.conversation.inbound import Address, Arrival
from gateway.domain.errors import SupaclawError
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Role
from gateway.flow.people import People
from gateway.store.connection.pool import Database
from gateway.store.transcript import journals
from gateway.store.transcript.journals import JournalRow
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter

REMEMBERED = 4_096
LOOK_UP_WITHIN = 5.0


@dataclass(slots=True)
class Places:
    """The files in use. The owner's are in the workspace, a member's in `others`, by id."""

    database: Database
    people: People
    writer: JournalWriter
    workspace: Path
    others: Path
    used: LRUCache[Address, Place] = field(default_factory=lambda: LRUCache(REMEMBERED), init=False)
    fresh: set[Place] = field(default_factory=set, init=False)
    """Files in use that the database does not have yet."""

    def root_of(self, principal: PrincipalId) -> Path:
        """The folder of a principal's files."""
        return self.workspace if self.people.is_owner(principal) else self.others / str(principal)

    def place_of(self, journal: JournalRow) -> Place:
        """The file of a journal."""
        return Place(self.root_of(journal.principal_id), journal.path)

    async def journal_at(self, place: Place) -> JournalRow | None:
        """The journal with this file; None if there is none."""
        principal = self.people.owner.id if place.root == self.workspace else PrincipalId(UUID(place.root.name))
        return await self.database.read(lambda conn: journals.at_path(conn, principal, place.path))

    def roots(self) -> list[Path]:
        """The folders of all principals; reads one folder."""
        return [self.workspace, *principal_folders(self.others)]

    async def of(self, arrival: Arrival, role: Role) -> Place | None:
        """The file of the conversation, a fresh one if it has none.

        None while its principal is unknown, and for a temporary chat.
        """
        address = arrival.inbound.address
        if address.temporary:
            return None
        place = self.used.get(address) or await self._look_up(arrival, role)
        if place is not None:
            self.used[address] = place
        return place

    def forget(self, place: Place) -> None:
        """Stop using this file."""
        self.fresh.discard(place)
        for address in [address for address, used in self.used.items() if used == place]:
            del self.used[address]

    async def _look_up(self, arrival: Arrival, role: Role) -> Place | None:
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN), self.database.connection() as conn:
                known = await journals.current(conn, arrival.inbound.address)
        except (SupaclawError, TimeoutError):  # the message is kept in any case, and its file corrected later
            known = None
        if known is None and not (role is Role.OWNER and arrival.inbound.private):
            return None
        principal, path = known or (self.people.owner.id, None)
        if path is not None:
            return Place(self.root_of(principal), path)
        place = await self.writer.create(self.root_of(principal), arrival.at)
        self.fresh.add(place)
        return place


def principal_folders(folder: Path) -> list[Path]:
    """The folders in this one that have the id of a principal as their name, in order."""
    return sorted(filter(_is_principal, folder.iterdir())) if folder.is_dir() else []


def _is_principal(path: Path) -> bool:
    with suppress(ValueError):
        return str(UUID(path.name)) == path.name and path.is_dir() and not path.is_symlink()
    return False
