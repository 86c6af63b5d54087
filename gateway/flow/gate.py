"""The gate between the channels and the inbox: strangers get no further, and nearly never an answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from gateway.domain.channel import Button, Outgoing, SendDelayed, SendFailed, SendUncertain
from gateway.domain.codes import MINUTES, Refusal, new_code, parse_code
from gateway.domain.errors import TryAgainLater
from gateway.domain.inbound import Address, Inbound
from gateway.domain.principals import Role
from gateway.flow.joining import Joining
from gateway.flow.notices import Notices
from gateway.flow.outbound import Outbound
from gateway.flow.people import OWN_CHANNELS, People
from gateway.flow.wakeup import Wakeup
from gateway.store import pairings
from gateway.store.pool import Database

LOOK_AGAIN = 30.0
"""Seconds until a decision of another process counts here at the latest, where the database cannot tell of it."""
LOOK_WITHIN = 5.0
"""Seconds that those behind a stranger may have to wait for the database."""
SEND_WITHIN = 30.0
WAITING = 100
"""Answers to strangers that are kept; who comes then gets none."""
ASKED = (
    f"I do not know you yet. If my owner expects you, tell them this code: {{code}}. It is good for {MINUTES} minutes."
)

log = structlog.get_logger(__name__)


class Gate:
    """Looks at who writes before anything is stored. `accept` takes what may pass, batch by batch, in order."""

    def __init__(
        self,
        database: Database,
        people: People,
        accept: Callable[[Sequence[Inbound]], Awaitable[object]],
        notices: Notices,
        outbound: Outbound,
        joining: Joining,
    ) -> None:
        self._database = database
        self._people = people
        self._accept = accept
        self._notices = notices
        self._outbound = outbound
        self._joining = joining
        self._changed = Wakeup()
        self._answers: asyncio.Queue[Outgoing] = asyncio.Queue(WAITING)

    async def receive(self, batch: Sequence[Inbound]) -> None:
        """Committed when this returns, but for what nobody may say here; raises `TryAgainLater` as `accept` does."""
        passing = [each for inbound in batch if (each := await self._let_by(inbound)) is not None]
        if passing:
            await self._accept(passing)

    def people_changed(self) -> None:
        """Another process let somebody in, turned somebody away or joined accounts."""
        self._changed.set()

    async def run(self) -> None:
        """Answer strangers and follow what other processes decide, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer(), name="answers to strangers")
            group.create_task(self._follow(), name="who is let in")

    async def _let_by(self, inbound: Inbound) -> Inbound | None:
        if inbound.address.channel in OWN_CHANNELS or inbound.sender.is_bot:
            return inbound
        if not inbound.private:
            return self._in_group(inbound)
        role = self._people.role(inbound)
        code = _link_code(inbound)
        if role is Role.OWNER or (role is Role.MEMBER and code is None):
            return inbound
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                return await self._new_here(inbound, role, code)
        except (TryAgainLater, TimeoutError) as exc:
            log.info("gate.database", error=str(exc) or "no answer in time")
        except Exception:  # nothing a stranger does may keep anybody waiting
            log.exception("gate.broken", channel=inbound.address.channel)
        return None if role is Role.STRANGER else inbound

    def _in_group(self, inbound: Inbound) -> Inbound | None:
        groups = self._people.rule(inbound.address.channel).groups
        if groups == "off" or self._people.role(inbound) is Role.STRANGER:
            return None
        return replace(inbound, addressed=True) if groups == "all" else inbound

    async def _new_here(self, inbound: Inbound, role: Role, code: str | None) -> Inbound | None:
        """A stranger, or a member with a code whose account may be nobody's yet."""
        if code is not None:
            return await self._joined(inbound, role, code)
        if self._people.rule(inbound.address.channel).mode == "pairing" and inbound.edits is None:
            await self._people.refresh(self._database)
            if self._people.role(inbound) is not Role.STRANGER:
                return inbound
            await self._ask(inbound)
        return None

    async def _joined(self, inbound: Inbound, role: Role, code: str) -> Inbound | None:
        """None once it is dealt with; a wrong code tells a stranger nothing, and leaves a member's account free."""
        joined = await self._joining.join(inbound, code)
        if joined is None:
            return None if role is Role.STRANGER else inbound
        if isinstance(joined, Refusal) and role is Role.MEMBER:
            self._say(inbound.address, joined, f"refused-{inbound.platform_id}")
        return None

    async def _ask(self, inbound: Inbound) -> None:
        asked = await self._database.run(lambda tx: pairings.request(tx, inbound, new_code()))
        if asked is None:
            return
        log.info("gate.asked", channel=asked.channel, request=asked.id)
        self._say(asked.address, ASKED.format(code=asked.code), f"pairing-{asked.id}-{asked.code}")
        await self._notices.tell_owner(
            f"{asked} asks to be let in. The code they were given is {asked.code}; it is good for {MINUTES} minutes. "
            f"/pairing approve {asked.code} lets them in, /pairing deny {asked.code} turns them away.",
            (Button("Let in", f"/pairing approve {asked.code}"), Button("No", f"/pairing deny {asked.code}")),
        )

    def _say(self, at: Address, text: str, key: str) -> None:
        if not self._answers.full():
            self._answers.put_nowait(Outgoing(at, text, key))

    async def _answer(self) -> None:
        """Best effort: nothing is owed to a stranger."""
        while True:
            message = await self._answers.get()
            channel = self._outbound.channel(message.address)
            if channel is None:
                continue
            try:
                async with asyncio.timeout(SEND_WITHIN):
                    await channel.send(message)
            except (SendFailed, SendDelayed, SendUncertain, TimeoutError) as exc:
                log.info("gate.not_answered", channel=message.address.channel, error=str(exc))
            except Exception:
                log.exception("gate.not_answered", channel=message.address.channel)

    async def _follow(self) -> None:
        while True:
            await self._changed.wait(LOOK_AGAIN)
            self._changed.clear()
            try:
                await self._people.refresh(self._database)
            except TryAgainLater as exc:
                log.info("gate.database", error=str(exc))


def _link_code(inbound: Inbound) -> str | None:
    command, _, argument = inbound.text.partition(" ")
    return parse_code(argument) if command == "/link" and inbound.edits is None else None
