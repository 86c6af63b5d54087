"""What was said before, by the ids of responses and their items; they mean something within one token only."""

import re
from collections.abc import Iterator, Sequence

from gateway.domain.conversation.digest import spoken
from gateway.domain.conversation.inbound import Earlier
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import ToolIntent
from gateway.domain.ids import InboxId, MessageId
from gateway.store.connection.pool import Connection
from gateway.store.delivery import requests
from gateway.store.transcript import messages
from gateway.store.transcript.messages import CLIENT, MessageRow
from gateway.web.auth.access import Caller
from gateway.web.http.errors import Refused
from gateway.web.site import Site
from gateway.web.v1.serving import CHANNEL

_ID = re.compile(r"(?:resp|msg|fc)_(?P<arrival>\d{1,18})(?:_(?P<place>\d{1,4}))?", re.ASCII)


async def until(site: Site, caller: Caller, response: str) -> tuple[Earlier, ...]:
    """The conversation up to this response; raises `Refused` if the token has none."""
    async with site.backend.database.connection() as conn:
        answer = await _answer(conn, caller, response)
        if answer is None or answer.seq is None:
            message = f"There is no response {response!r}."
            raise Refused(400, "previous_response_not_found", message, param="previous_response_id")
        return tuple(_told(await messages.told_until(conn, answer.session_id, answer.seq)))


async def items(site: Site, caller: Caller, ids: Sequence[str]) -> dict[str, Earlier]:
    """The items with these ids, as far as the token has them."""
    found: dict[str, Earlier] = {}
    told: dict[MessageId, Earlier] = {}
    async with site.backend.database.connection() as conn:
        for id in ids:
            if (answer := await _answer(conn, caller, id)) is None:
                continue
            if answer.id not in told:
                *_, told[answer.id] = _told(await messages.told_until(conn, answer.session_id, answer.seq or 0))
            if (item := _item(told[answer.id], id)) is not None:
                found[id] = item
    return found


async def _answer(conn: Connection, caller: Caller, id: str) -> MessageRow | None:
    match = _ID.fullmatch(id)
    arrival = await requests.arrival(conn, CHANNEL, caller.account, InboxId(int(match["arrival"]))) if match else None
    asked = await messages.get(conn, arrival.message_id) if arrival and arrival.message_id else None
    answer = await messages.get(conn, asked.answered_by) if asked and asked.answered_by else None
    return answer if answer is not None and answer.kind == "assistant" else None


def _item(told: Earlier, id: str) -> Earlier | None:
    if id.startswith("msg_"):
        return Earlier("assistant", told.text)
    match = _ID.fullmatch(id)
    place = int(match["place"] or 0) if match else 0
    return Earlier("assistant", "", told.calls[place : place + 1]) if place < len(told.calls) else None


def _told(rows: Sequence[MessageRow]) -> Iterator[Earlier]:
    """The rows as the client knows them: without instructions, tools of ours, and what got no answer."""
    answers = {row.id for row in rows if row.kind == "assistant"}
    texts: list[str] = []
    calls: list[ToolCall] = []
    for row in rows:
        match row.entry:
            case ToolIntent(call, handed=True):
                calls.append(call)
            case _ if row.kind == "assistant":
                texts.append(row.text)
            case _ if (
                row.kind == "user"
                and (row.text or row.answered_by is None)
                and (row.answered_by in answers or row.said_earlier)
            ):
                yield from _assistant(texts, calls)
                yield Earlier("user", row.text)
            case _ if row.kind == "tool_result" and row.origin == CLIENT:
                yield from _assistant(texts, calls)
                yield Earlier("tool", row.text, call_id=row.call_id or "")
            case _:
                pass
    yield from _assistant(texts, calls)


def _assistant(texts: list[str], calls: list[ToolCall]) -> Iterator[Earlier]:
    if texts or calls:
        yield Earlier("assistant", spoken(texts), tuple(calls))
        texts.clear()
        calls.clear()
