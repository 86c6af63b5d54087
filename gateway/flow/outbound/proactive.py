"""Proactive messages: sent to a person in one of their own chats without a question, such as notices to the owner."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Unpack

import structlog

from gateway.domain.channels.channel import Button
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.errors import SupaclawError
from gateway.domain.ids import AddressId, PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.marks import without_headings
from gateway.flow.engine import Engine
from gateway.flow.live import MessageStored
from gateway.flow.outbound.parts import Attachments
from gateway.flow.outbound.sender import Outbound
from gateway.flow.people import People
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.workspace.locks import REPLACED_MARK

PAGE, TERMINAL = "web", "terminal"
"""Channels that show the transcript itself: the page always, the terminal only while it is open."""


class HandedOver(SupaclawError):
    """The chat belongs to somebody else now; nothing was stored."""

    code = "no_such_chat"


@dataclass(frozen=True, slots=True)
class ProactiveMessages:
    """Stores a message in a chat, so that the person can reply to it; it never starts a turn.

    Lock order: address, session of the chat, session of the run, task, schedule. So a run asks for its `destination`
    first, and locks its own session and task after that.
    """

    engine: Engine
    outbound: Outbound
    configured: Callable[[], Collection[str]]

    @property
    def channels(self) -> set[str]:
        """The channels on which people can be reached."""
        return {PAGE, *self.configured()}

    async def destination(
        self,
        tx: Connection,
        principal: PrincipalId,
        *,
        address: AddressId | None = None,
        channel: str | None = None,
        avoid: AddressId | None = None,
    ) -> AddressRow | None:
        """The chat to send to, locked with its session: `address`, else one on `channel`, else the chat used
        last; the terminal only if there is no other; never `avoid`. None: there is no chat.
        """
        reach = partial(addresses.notification_address, tx, principal, self.channels, TERMINAL)
        while at := await reach(asked=address, channel=channel, avoid=avoid):
            held = await addresses.lock_by_id(tx, at.id)
            if held.principal_id == principal:  # else it was handed over while we waited
                await sessions.lock(tx, held.session_id)
                return held
        return None

    async def say(
        self,
        tx: Connection,
        at: AddressRow,
        principal: PrincipalId,
        entry: AssistantText | Notice,
        *,
        label: Label,
        origin: str = "gateway",
        task: TaskId | None = None,
        sent: str | None = None,
        **more: Unpack[Attachments],
    ) -> MessageRow:
        """Store it in the chat's current session, and queue it, or the shorter text `sent`. Raises `HandedOver`.

        A message of the agent ends no turn, and the session rises to its label. In a private chat each part has the
        `heading`, and the text can't imitate it.
        """
        held = await addresses.lock_by_id(tx, at.id)
        if held.principal_id != principal:
            raise HandedOver("That chat now belongs to someone else; nothing was sent.")
        await sessions.lock(tx, held.session_id)
        said: AssistantText | Notice = entry
        shown = entry.text if sent is None else sent
        trusts = held.private and isinstance(entry, AssistantText)  # a group trusts nothing
        heading = more["heading"] = more.get("heading", "") if trusts else ""
        if heading:
            said, shown = replace(entry, text=f"{heading}\n\n{without_headings(entry.text)}"), without_headings(shown)
        if isinstance(said, AssistantText):  # a model doesn't read notices
            await sessions.taint(tx, held.session_id, label)
            said = replace(said, final=False)
        row = await messages.say(
            tx, held.session_id, principal, said, label=label, origin=origin, address=held.id, task=task
        )
        await self.outbound.put(tx, held, row.id, shown, **more)
        return row

    def committed(self, row: MessageRow) -> None:
        """Publish a message that was stored, and wake the sender."""
        self.engine.live.publish(row.session_id, MessageStored(row.id))
        self.engine.signals.outbox.set()

    async def notify(self, principal: PrincipalId, notice: Notice, buttons: Sequence[Button] = ()) -> MessageRow | None:
        """Send a notice to the person's chat; None if there is none."""

        async def work(tx: Connection) -> MessageRow | None:
            at = await self.destination(tx, principal)
            if at is None:
                return None
            return await self.say(tx, at, principal, notice, label=Label.OWNER, buttons=buttons)

        row = await self.engine.database.run(work)
        if row is not None:
            self.committed(row)
        return row


TAMPERED_NOTICE_SECONDS = 3600.0
_RESTORED = (
    "A tool changed locked text in {}. It has been put back, byte for byte. What stood there is in the data folder, "
    "under replaced/."
)
_PUT_ASIDE = "A command made instructions for the agent. They are not followed, but renamed; look at them in {}."

log = structlog.get_logger(__name__)


class Notices:
    """Sends notices to the chat that the owner used last."""

    def __init__(self, people: People, proactive: ProactiveMessages) -> None:
        self._people = people
        self._proactive = proactive
        self._tampered: dict[tuple[PrincipalId, str], float] = {}

    async def tampered(self, principal: PrincipalId, paths: Sequence[str]) -> None:
        """Report what a tool did that `LockKeeper.check` has undone, at most once an hour for each file."""
        now, keys = monotonic(), {path: (principal, path.partition(REPLACED_MARK)[0]) for path in paths}
        told = [path for path in paths if now > self._tampered.get(keys[path], -inf) + TAMPERED_NOTICE_SECONDS]
        self._tampered |= {keys[path]: now for path in told}
        log.warning("locks.tampered", principal=str(principal), files=list(paths))
        whose = "" if principal == self._people.owner.id else f" of {principal}"
        for text, made in ((_RESTORED, False), (_PUT_ASIDE, True)):
            if found := [path for path in told if (REPLACED_MARK in path) is made]:
                try:
                    await self.tell_owner(text.format(f"{', '.join(found)}{whose}"))
                except Exception:  # the tool's run must continue
                    log.exception("locks.not_told")

    async def tell_owner(self, text: str, buttons: tuple[Button, ...] = ()) -> None:
        """Send a notice to the owner; without a chat it is only logged."""
        if not await self._proactive.notify(self._people.owner.id, Notice(text), buttons):
            log.warning("owner.unreachable", notice=text)
