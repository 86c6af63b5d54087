"""What the end of a node means: its parent has a result, and the person hears of the first task of a tree."""

from dataclasses import dataclass

from gateway.agent.work.task_trees import SHORT
from gateway.domain.channels.channel import Button
from gateway.domain.conversation.transcript import Notice
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.finish import Finished
from gateway.flow.unattended.origins import Deliver, UnattendedResult
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript.messages import MessageRow


@dataclass(frozen=True, slots=True)
class TaskOrigin:
    """Task trees; a failed node is a result for its parent, a failed tree a notice."""

    proactive: ProactiveMessages

    async def unwanted(self, _tx: Connection, _run: Claim) -> str | None:
        """What nobody wants any more was cancelled."""
        return None

    async def dropped(self, _tx: Connection, _run: Claim, _why: str) -> None:
        """Its task says so."""

    async def ended(self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver) -> Finished:
        """The result for the parent; or for the chat that asked."""
        if ended.reason is not None:
            said = await self._failed(tx, ended, ended.reason, at) if at is not None else None
            return Finished(Status.FAILED, ended.reason, said)
        said = await deliver() if ended.assignment.deliver else None
        return Finished(Status.COMPLETED, sent=said, result=ended.result.entry.text)

    async def _failed(self, tx: Connection, ended: UnattendedResult, reason: str, at: AddressRow) -> MessageRow:
        """Without what models and others wrote."""
        id = str(ended.run.id)[:SHORT]
        notice = Notice(f"The task {id} failed: {reason}")
        again = Button("Try again", f"/tasks retry {id}")
        return await self.proactive.say(
            tx, at, ended.run.principal_id, notice, label=Label.OWNER, origin="gateway", buttons=(again,)
        )

    def after(self, sent: MessageRow | None) -> None:
        """The parent was woken by the database."""
