"""Notices: messages from the gateway itself to its owner."""

import structlog

from gateway.domain.channel import Button
from gateway.domain.principals import Label
from gateway.domain.transcript import Notice
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.people import People

log = structlog.get_logger(__name__)


class Notices:
    """Sends notices to the chat that the owner used last."""

    def __init__(self, people: People, proactive: ProactiveMessages) -> None:
        self._people = people
        self._proactive = proactive

    async def tell_owner(self, text: str, buttons: tuple[Button, ...] = ()) -> None:
        """Store and send a notice; for an owner who has no chat yet it is only logged."""
        owner, notice = self._people.owner.id, Notice(text)
        if not await self._proactive.tell(owner, notice, label=Label.OWNER, origin="gateway", buttons=buttons):
            log.warning("owner.unreachable", notice=text)
