"""The spool, handed over in order: a message leaves it once it is accepted."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from google.protobuf.message import DecodeError
from neonize.aioze.events import MessageEv
from neonize.exc import NeonizeError

from channels.whatsapp.link import Link
from channels.whatsapp.messages import is_hidden, to_inbound
from channels.whatsapp.store import Us
from gateway.domain.channels.channel import Accept
from gateway.domain.channels.platform import Logger
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.errors import TryAgainLater

BATCH = 20
LONGEST_PAUSE = 2.0


async def take_in(link: Link, accept: Accept, log: Logger) -> None:
    """Until cancelled; what an earlier run of the program left comes first."""
    while True:
        link.arrived.clear()
        kept = await asyncio.to_thread(link.spool.head, BATCH)
        if not kept:
            await link.arrived.wait()
        elif (us := link.pairing.us) is None:
            await link.pairing.connected.wait()
        else:
            read = [await _read(data, us, link, log) for _, data in kept]
            await _hand_over([inbound for inbound in read if inbound is not None], link, accept, log)
            await asyncio.to_thread(link.spool.drop, [name for name, _ in kept])


async def _hand_over(batch: Sequence[Inbound], link: Link, accept: Accept, log: Logger) -> None:
    failures = 0
    while batch:
        try:
            return await accept(batch)
        except TryAgainLater as error:
            if not failures:
                log.warning("whatsapp.not_accepted", why=str(error))
            failures += 1
            await link.patience.after(failures, LONGEST_PAUSE)
    return None


async def _read(data: bytes, us: Us, link: Link, log: Logger) -> Inbound | None:
    """What breaks WhatsApp's own rules is left out."""
    try:
        event = MessageEv.FromString(data)
        await _uncover(event, link)
        return to_inbound(event, us)
    except (DecodeError, ValueError, OverflowError) as error:
        log.warning("whatsapp.unreadable", why=f"{type(error).__name__}: {error}"[:200])
        return None


async def _uncover(event: MessageEv, link: Link) -> None:
    """Whoever is let in is known by the phone number; neonize may have learnt it from an earlier message.

    Go dies of the question when it has no session.
    """
    source = event.Info.MessageSource
    if source.IsFromMe or not is_hidden(source):
        return
    await link.pairing.connected.wait()
    with suppress(NeonizeError):
        number = await link.client.get_pn_from_lid(source.Sender)
        if number.User:
            source.SenderAlt.CopyFrom(number)
