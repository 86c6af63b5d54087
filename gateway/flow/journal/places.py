"""Places: which journal file is written into at an address."""

import asyncio
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from gateway.domain.errors import SupaclawError
from gateway.domain.ids import PrincipalId
from gateway.domain.inbound import Address, Arrival
from gateway.domain.principals import Role
from gateway.flow.people import People
from gateway.store import journals
from gateway.store.pool import Database
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter

REMEMBERED = 4_096
LOOK_UP_WITHIN = 5.0


class Places:
    """Remembers the files in use. The owner's lie in the workspace, another's under their own id below `others`."""

    def __init__(
        self, database: Database, people: People, writer: JournalWriter, workspace: Path, others: Path
    ) -> None:
        self._database = database
        self._people = people
        self._writer = writer
        self._workspace = workspace
        self._others = others
        self._used: OrderedDict[Address, Place] = OrderedDict()

    def root_of(self, principal: PrincipalId) -> Path:
        """Where a principal's files lie."""
        return self._workspace if self._people.is_owner(principal) else self._others / str(principal)

    def owner_of(self, place: Place) -> PrincipalId:
        """Whose file it is."""
        return self._people.owner.id if place.root == self._workspace else PrincipalId(UUID(place.root.name))

    def roots(self) -> list[Path]:
        """Every file root there is; reads one folder."""
        others = self._others.iterdir() if self._others.is_dir() else ()
        return [self._workspace, *sorted(path for path in others if _is_principal(path))]

    async def of(self, arrival: Arrival, role: Role) -> Place | None:
        """The file of the conversation, a fresh one where there is none; None if nobody can say yet whose it is."""
        address = arrival.inbound.address
        place = self._used.get(address) or await self._look_up(arrival, role)
        if place is not None:
            self._used[address] = place
            self._used.move_to_end(address)
            if len(self._used) > REMEMBERED:
                self._used.popitem(last=False)
        return place

    def forget(self, place: Place) -> None:
        """Nothing goes into this file any more."""
        for address in [at for at, used in self._used.items() if used == place]:
            del self._used[address]

    def bound(self, address: Address, place: Place) -> None:
        """The database knows the file now."""
        if self._used.get(address) == place:
            self._used[address] = replace(place, fresh=False)

    async def _look_up(self, arrival: Arrival, role: Role) -> Place | None:
        inbound = arrival.inbound
        at = await self._current(inbound.address)
        if at is not None:
            root = self.root_of(at.principal_id)
            return await self._writer.create(root, arrival.at) if at.path is None else Place(root, at.path)
        if role is Role.OWNER and inbound.private:
            return await self._writer.create(self._workspace, arrival.at)
        return None

    async def _current(self, address: Address) -> journals.Current | None:
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN), self._database.connection() as conn:
                return await journals.current(conn, address)
        except (SupaclawError, TimeoutError):  # the message is kept all the same, and its place put right later
            return None


def _is_principal(path: Path) -> bool:
    try:
        return str(UUID(path.name)) == path.name and path.is_dir() and not path.is_symlink()
    except ValueError:
        return False
