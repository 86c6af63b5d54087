"""A request of the Responses API, turned into a chat request, and the earlier responses that it refers to by id."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from gateway.domain.conversation.digest import spoken
from gateway.domain.conversation.inbound import Earlier
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import ToolIntent
from gateway.domain.ids import InboxId, MessageId
from gateway.domain.text.texts import storable
from gateway.store.connection.pool import Connection
from gateway.store.delivery import inbox
from gateway.store.transcript import messages
from gateway.store.transcript.messages import CLIENT, MessageRow
from gateway.web.auth.access import Caller
from gateway.web.http.errors import Refused
from gateway.web.site import Site
from gateway.web.v1.request import ChatRequest, fields_of, flag, instructions_first, invalid, options_of, split
from gateway.web.v1.request_fields import InlineFile, call_of, files_of, format_of, result_of, text_of
from gateway.web.v1.serving import CHANNEL

_TEXTS = frozenset({"input_text", "output_text"})


@dataclass(frozen=True, slots=True)
class UnresolvedRequest:
    """A request whose references to earlier responses are not looked up yet."""

    fields: Mapping[str, JsonValue]
    previous: str | None
    items: tuple[JsonValue, ...]

    @property
    def references(self) -> tuple[str, ...]:
        """The ids of items that were told before and are not sent again."""
        found = (item.get("id") for item in self.items if _kind(item) == "item_reference" and isinstance(item, dict))
        return tuple(id for id in found if isinstance(id, str))

    def resolved(self, before: Sequence[Earlier], known: Mapping[str, Earlier]) -> ChatRequest:
        """With what was said before the previous response's end, and what is behind `references`; raises `Refused`."""
        told = [*before, *_messages(self.items, known)]
        instructions = self.fields.get("instructions")
        if isinstance(instructions, str):
            told.insert(0, Earlier("system", instructions))
        if not self.items or not told:
            raise invalid("input", "'input' must be a text or a list of items.")
        earlier, results, text = split(told, "input")
        form = self.fields.get("text")
        wanted = _nested(form.get("format")) if isinstance(form, dict) else None
        return ChatRequest(
            model=str(self.fields["model"]),
            text=text,
            files=_files(self.items),
            earlier=earlier,
            options=options_of(self.fields, format_of(wanted, "text.format")),
            results=results,
            stream=flag(self.fields.get("stream"), "stream"),
        )


def parse(body: bytes, models: Sequence[str]) -> UnresolvedRequest:
    """Raises `Refused`, naming the field."""
    fields = fields_of(body, models)
    previous, said = fields.get("previous_response_id"), fields.get("input")
    if not isinstance(previous, str | None):
        raise invalid("previous_response_id", "'previous_response_id' must be the id of a response.")
    said = instructions_first([{"role": "user", "content": said}] if isinstance(said, str) else said)
    items = said if isinstance(said, list) else []
    return UnresolvedRequest(fields, previous, tuple(items))


def _messages(items: Sequence[JsonValue], known: Mapping[str, Earlier]) -> list[Earlier]:
    told: list[Earlier] = []
    for at, item in enumerate(items):
        said = _message(item, f"input[{at}]", known)
        if said is None:
            continue
        last = told[-1] if told else None
        if said.calls and not said.text and last is not None and last.role == "assistant":
            told[-1] = replace(last, calls=(*last.calls, *said.calls))
        else:
            told.append(said)
    return told


def _message(item: JsonValue, param: str, known: Mapping[str, Earlier]) -> Earlier | None:
    """One item; None for a model's reasoning, which nobody reads again."""
    match item:
        case {"type": "reasoning"}:
            return None
        case {"type": "item_reference", "id": str(id)}:
            if id not in known:
                raise Refused(400, "item_not_found", f"There is no item {id!r}.", param=param)
            return known[id]
        case {"type": "function_call", "call_id": id}:
            return Earlier("assistant", "", (call_of(id, item, param),))
        case {"type": "function_call_output", "call_id": str(id), "output": output} if id:
            return Earlier("tool", result_of(_parts(output), f"{param}.output"), call_id=storable(id))
        case {"role": "user" | "assistant" | "system" | "developer" as role, "content": content}:
            text = text_of(_parts(content), f"{param}.content")
            return Earlier("system" if role == "developer" else role, text)
        case _:
            raise Refused(400, "unsupported_value", "This item is not supported.", param=param)


def _files(items: Sequence[JsonValue]) -> tuple[InlineFile, ...]:
    match items:
        case [*earlier, {"role": "user", "content": content}]:
            return files_of(_parts(content), f"input[{len(earlier)}].content")
        case _:
            return ()


def _parts(content: JsonValue) -> JsonValue:
    """The parts in the form of a chat completion."""
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: JsonValue) -> JsonValue:
    match part:
        case {"type": str(kind), "text": text} if kind in _TEXTS:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": url}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "input_file"}:
            return {"type": "file", "file": part}
        case _:
            return part


def _nested(form: JsonValue) -> JsonValue:
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}


def _kind(item: JsonValue) -> JsonValue:
    return item.get("type") if isinstance(item, dict) else None


_ID = re.compile(r"(?:resp|msg|fc)_(?P<arrival>\d{1,18})(?:_(?P<place>\d{1,4}))?", re.ASCII)


async def earlier_until(site: Site, caller: Caller, response: str) -> tuple[Earlier, ...]:
    """The conversation up to this response; raises `Refused` if the token has none."""
    async with site.backend.database.connection() as conn:
        answer = await _answer(conn, caller, response)
        if answer is None or answer.seq is None:
            message = f"There is no response {response!r}."
            raise Refused(400, "previous_response_not_found", message, param="previous_response_id")
        return tuple(_told(await messages.told_until(conn, answer.session_id, answer.seq)))


async def items_by_id(site: Site, caller: Caller, ids: Sequence[str]) -> dict[str, Earlier]:
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
    arrival = await inbox.find(conn, CHANNEL, caller.account, InboxId(int(match["arrival"]))) if match else None
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
