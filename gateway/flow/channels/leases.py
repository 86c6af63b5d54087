"""Leases on channels: one instance at a time opens a channel, and another takes it over when that one stops or dies."""

from contextlib import suppress
from dataclasses import dataclass, field

from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import instances


def lease_of(channel: str) -> str:
    """The lease's name."""
    return f"channel {channel}"


@dataclass(slots=True)
class ChannelLeases:
    """The channels that are ours; `held` are the names of their leases, which are to be renewed."""

    database: Database
    instance: InstanceId
    held: set[str] = field(default_factory=set, init=False)

    def has(self, channel: str) -> bool:
        """Whether it is ours."""
        return lease_of(channel) in self.held

    async def take(self, channel: str, *, stays: bool = False) -> str:
        """Take it if it is free; else why we have to wait.

        One that `stays` with its machine does so until that is forgotten.
        """
        if self.has(channel):
            return ""
        try:
            waits = await self.database.run(lambda tx: self._take(tx, channel, stays=stays))
        except TryAgainLater as exc:
            return f"waits for the database: {exc}"
        if not waits:
            self.held.add(lease_of(channel))
        return waits

    async def drop(self, channel: str) -> None:
        """Let others have it, at once or when the lease is over."""
        if self.has(channel):
            self.held.discard(lease_of(channel))
            with suppress(TryAgainLater):
                await self.database.run_alone(lambda conn: instances.drop_lease(conn, lease_of(channel), self.instance))

    async def _take(self, tx: Connection, channel: str, *, stays: bool) -> str:
        if stays and (machine := await instances.settle(tx, channel, self.instance)):
            return (
                f"waits for its machine {machine}, in whose files it keeps what it needs; if that machine is gone for "
                f"good, `supaclaw machines forget {machine}` lets this one connect anew"
            )
        if await instances.take_lease(tx, lease_of(channel), self.instance, instances.LEASE_SECONDS):
            return ""
        return f"waits: {await instances.holder(tx, lease_of(channel)) or 'another gateway'} has it open"
