"""The gate between channels and inbox: strangers are stopped here, most without a reply."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from gateway.domain.channels.channel import Button, Outgoing
from gateway.domain.channels.routing import command_in
from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.errors import TryAgainLater
from gateway.domain.people.access import identity_of
from gateway.domain.people.credentials import CODE_MINUTES, CodeRefusal, new_code, parse_code
from gateway.domain.principals import Role
from gateway.flow.engine import Engine
from gateway.flow.live import MessageStored
from gateway.flow.outbound.proactive import Notices
from gateway.flow.outbound.sender import Outbound
from gateway.store.connection.pool import Connection
from gateway.store.people import accounts, pairings, principals
from gateway.store.transcript.messages import MessageRow

POLL_SECONDS = 30.0
"""Most seconds until a decision of another process applies here, if the database sends no notification."""
RELOAD_PAUSE_SECONDS = 0.2
"""Seconds between two reloads, so that a thousand decisions cost only a few."""
STRANGERS_SECONDS = 5.0
"""Seconds that strangers may delay the other messages of a batch."""
SEND_SECONDS = 30.0
MAX_QUEUED = 100
"""Most queued replies to strangers; further strangers get none."""
MAX_SENDING = 20
"""Concurrent replies, so that a platform that hangs does not block the others."""
ASKED = (
    "I don't know you yet. If my owner expects you, give them this code: {code}. "
    f"It's valid for {CODE_MINUTES} minutes."
)

CLAIMED = (
    "One more step: confirm this account where you got the code, or on the People page. "
    f"The question is open for {CODE_MINUTES} minutes."
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Gate:
    """Checks the sender before a message is stored; `accept` gets the messages that pass, in order."""

    engine: Engine
    accept: Callable[[Sequence[Inbound]], Awaitable[object]]
    notices: Notices
    outbound: Outbound
    offer_zone: Callable[[Inbound], Awaitable[None]]
    _answers: asyncio.Queue[Outgoing] = field(default_factory=lambda: asyncio.Queue(MAX_QUEUED), init=False)

    async def receive(self, batch: Sequence[Inbound]) -> None:
        """Check a batch and accept what passes, committed on return. Raises `TryAgainLater` as `accept` does."""
        until = asyncio.get_running_loop().time() + STRANGERS_SECONDS
        passing = [each for inbound in batch if (each := await self._admit(inbound, until)) is not None]
        if passing:
            await self.accept(passing)
        for inbound in passing:
            await self.offer_zone(inbound)

    async def run(self) -> None:
        """Reply to strangers and apply decisions of other processes, until cancelled."""
        free = asyncio.Semaphore(MAX_SENDING)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="access reload")
            while True:
                await free.acquire()
                sending = self.outbound.send_past(await self._answers.get(), SEND_SECONDS)
                answer = group.create_task(sending, name="reply to a stranger")
                answer.add_done_callback(lambda _: free.release())

    async def _admit(self, inbound: Inbound, until: float) -> Inbound | None:
        if not inbound.private:
            return self._in_group(inbound)
        role, code = self.engine.people.role(inbound), _link_code(inbound)
        if role is Role.OWNER or inbound.sender.is_bot or (role is Role.MEMBER and code is None):
            return inbound
        try:
            async with asyncio.timeout_at(until):
                handled = self._request_access(inbound) if code is None else self._redeem(inbound, role, code)
                return await handled
        except (TryAgainLater, TimeoutError) as exc:
            log.info("gate.database", error=str(exc) or "no answer in time")
        except Exception:  # a stranger must not delay the others
            log.exception("gate.broken", channel=inbound.address.channel)
        return None if role is Role.STRANGER else inbound

    def _in_group(self, inbound: Inbound) -> Inbound | None:
        groups = self.engine.people.rule(inbound.address.channel).groups
        if groups == "off" or self.engine.people.role(inbound) is Role.STRANGER:
            return None
        return replace(inbound, addressed=True) if groups == "all" else inbound

    async def _request_access(self, inbound: Inbound) -> Inbound | None:
        if await self.engine.database.read(lambda conn: principals.find(conn, identity_of(inbound))) is not None:
            await self.engine.people.refresh(self.engine.database)  # another process may have linked the account
            if self.engine.people.role(inbound) is not Role.STRANGER:
                return inbound
        if self.engine.people.rule(inbound.address.channel).mode != "pairing" or inbound.edits is not None:
            return None
        standing = await self.engine.database.read(lambda conn: pairings.standing(conn, inbound))
        if standing == "approved":  # by another process
            await self.engine.people.refresh(self.engine.database)
            return inbound
        if standing is None:
            await self._ask(inbound)
        return None

    async def _redeem(self, inbound: Inbound, role: Role, code: str) -> Inbound | None:
        """Handle a code from an account that may not be linked yet; None if the message needs nothing more.

        A wrong code of a stranger is an access request like any other message.
        """
        asked = await self.engine.database.run(lambda tx: self._claim(tx, inbound, code))
        if asked is None:
            return None if role is Role.STRANGER else inbound
        if isinstance(asked, MessageRow):
            self.engine.live.publish(asked.session_id, MessageStored(asked.id))
            self.engine.signals.outbox.set()
            self._say(inbound.address, CLAIMED, f"claimed-{inbound.platform_id}")
        elif role is Role.STRANGER:
            return await self._request_access(inbound)
        else:
            self._say(inbound.address, asked, f"refused-{inbound.platform_id}")
        return None

    async def _claim(self, tx: Connection, inbound: Inbound, code: str) -> MessageRow | CodeRefusal | None:
        """Ask the owner of the code; None if the account belongs to somebody already."""
        if await principals.find(tx, identity_of(inbound)) is not None:
            return None
        claim = await accounts.claim(tx, inbound, code)
        if isinstance(claim, CodeRefusal):
            return claim
        if not self.engine.people.may_join(inbound, claim.principal_id):
            await accounts.settle(tx, claim.principal_id, code)
            return CodeRefusal.WRONG
        return await accounts.ask(tx, claim)

    async def _ask(self, inbound: Inbound) -> None:
        asked = await self.engine.database.run(lambda tx: pairings.request(tx, inbound, new_code()))
        if asked is None:
            return
        log.info("gate.asked", channel=asked.channel, request=asked.id)
        self._say(asked.address, ASKED.format(code=asked.code), f"pairing-{asked.id}-{asked.code}")
        await self.notices.tell_owner(
            f"{asked} requests access with the code {asked.code}, which is valid for {CODE_MINUTES} minutes. "
            f"/pairing approve {asked.code} allows it, /pairing deny {asked.code} refuses it.",
            (Button("Approve", f"/pairing approve {asked.code}"), Button("Deny", f"/pairing deny {asked.code}")),
        )

    def _say(self, at: Address, text: str, key: str) -> None:
        if not self._answers.full():
            self._answers.put_nowait(Outgoing(at, text, key))

    async def _follow(self) -> None:
        while True:
            await self.engine.signals.access.wait(POLL_SECONDS)
            self.engine.signals.access.clear()
            try:
                await self.engine.people.refresh(self.engine.database)
            except TryAgainLater as exc:
                log.info("gate.database", error=str(exc))
            await asyncio.sleep(RELOAD_PAUSE_SECONDS)


def _link_code(inbound: Inbound) -> str | None:
    command, argument = command_in(inbound)
    return parse_code(argument) if command in {"link", "start"} and inbound.edits is None else None
