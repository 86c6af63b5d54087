"""Notices: messages from the gateway itself to its owner."""

from collections.abc import Sequence
from math import inf
from time import monotonic

import structlog

from gateway.domain.channels.channel import Button
from gateway.domain.conversation.transcript import Notice
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.people import People

TOLD_SECONDS = 3600.0

log = structlog.get_logger(__name__)


class Notices:
    """Sends notices to the chat that the owner used last."""

    def __init__(self, people: People, proactive: ProactiveMessages) -> None:
        self._people = people
        self._proactive = proactive
        self._tampered: dict[tuple[PrincipalId, str], float] = {}

    async def tampered(self, principal: PrincipalId, paths: Sequence[str]) -> None:
        """A tool changed locked text of these files, and it was put back; an hour's further ones are only logged."""
        told = [path for path in paths if monotonic() > self._tampered.get((principal, path), -inf) + TOLD_SECONDS]
        self._tampered |= {(principal, path): monotonic() for path in told}
        log.warning("locks.tampered", principal=str(principal), files=list(paths))
        if told:
            whose = "" if principal == self._people.owner.id else f" of {principal}"
            text = f"A tool changed locked text in {', '.join(told)}{whose}. It has been put back, byte for byte."
            try:
                await self.tell_owner(f"{text} What stood there is in the data folder, under replaced/.")
            except Exception:  # the tool's run must go on
                log.exception("locks.not_told")

    async def tell_owner(self, text: str, buttons: tuple[Button, ...] = ()) -> None:
        """Store and send a notice; for an owner who has no chat yet it is only logged."""
        owner, notice = self._people.owner.id, Notice(text)
        if not await self._proactive.tell(owner, notice, label=Label.OWNER, origin="gateway", buttons=buttons):
            log.warning("owner.unreachable", notice=text)
