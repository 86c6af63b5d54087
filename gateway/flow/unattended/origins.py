"""Where an unattended run came from decides what its end means: for a schedule its history, for a trigger a notice."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gateway.agent.work.schedules import trigger_failed
from gateway.domain.principals import Label
from gateway.domain.work.assignment import QUIET, Assignment, is_quiet
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.finish import Finished
from gateway.flow.turn.runner import TurnResult
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.scheduling import triggers
from gateway.store.transcript.messages import MessageRow


@dataclass(frozen=True, slots=True)
class UnattendedResult:
    """What a run came to; or, in one line for its person, the `reason` why it failed. `own` is that person's label."""

    run: Claim
    assignment: Assignment
    result: TurnResult
    reason: str | None
    own: Label

    @property
    def tells(self) -> bool:
        """Whether the agent has something to say."""
        return self.assignment.deliver and self.reason is None and not is_quiet(self.result.entry.text, QUIET)


Deliver: TypeAlias = Callable[[], Awaitable[MessageRow | None]]
"""Says the result in its chat; None if there is no chat."""


class Origin(Protocol):
    """What queues unattended runs, as their end concerns it; each method is part of the caller's transaction."""

    async def unwanted(self, tx: Connection, run: Claim) -> str | None:
        """Why nobody wants the run any more; None if somebody does."""
        ...

    async def dropped(self, tx: Connection, run: Claim, why: str) -> None:
        """The run ends without having been opened."""
        ...

    async def ended(self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver) -> Finished:
        """Record the end; `deliver` is called if there is something to say. The caller holds the chat `at`."""
        ...

    def after(self, sent: MessageRow | None) -> None:
        """The end is committed, with what was said; never blocks."""
        ...


@dataclass(frozen=True, slots=True)
class TriggerOrigin:
    """Requests of other programs: a failure is told once an hour for each source."""

    proactive: ProactiveMessages

    async def unwanted(self, _tx: Connection, _run: Claim) -> str | None:
        """A trigger can't be withdrawn."""
        return None

    async def dropped(self, _tx: Connection, _run: Claim, _why: str) -> None:
        """Its task says so."""

    async def ended(self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver) -> Finished:
        """The result, or the notice of a failure."""
        if ended.reason is not None:
            return Finished(Status.FAILED, ended.reason, await self._fail(tx, ended, ended.reason, at))
        return Finished(Status.COMPLETED, sent=await deliver() if ended.tells else None)

    async def _fail(
        self, tx: Connection, ended: UnattendedResult, reason: str, at: AddressRow | None
    ) -> MessageRow | None:
        run, source = ended.run, ended.assignment.name
        if at is None or await triggers.failed_this_hour(tx, run.principal_id, source, run.id):
            return None
        notice = trigger_failed(source, reason)
        return await self.proactive.say(tx, at, run.principal_id, notice, label=Label.OWNER, origin="gateway")

    def after(self, sent: MessageRow | None) -> None:
        """Nothing follows."""
