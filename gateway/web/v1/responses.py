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
from gateway.web.v1.request import ChatRequest, fields_of, instructions_first, request_of
from gateway.web.v1.request_fields import InlineFile, call_of, files_of, format_of, invalid, kind_of, result_of, text_of
from gateway.web.v1.serving import CHANNEL


@dataclass(frozen=True, slots=True)
class UnresolvedRequest:
    """A request whose references to earlier responses are not looked up yet."""

    fields: Mapping[str, JsonValue]
    previous: str | None
    items: tuple[JsonValue, ...]

    @property
    def references(self) -> tuple[str, ...]:
        """The ids of earlier items that the client refers to instead of sending them again."""
        found = (item.get("id") for item in self.items if kind_of(item) == "item_reference" and isinstance(item, dict))
        return tuple(id for id in found if isinstance(id, str))

    def resolved(self, before: Sequence[Earlier], known: Mapping[str, Earlier]) -> ChatRequest:
        """The request with the history up to the previous response, and the items of `references`; raises `Refused`."""
        history = [*before, *_messages(self.items, known)]
        instructions = self.fields.get("instructions")
        if isinstance(instructions, str):
            history.insert(0, Earlier("system", instructions))
        if not self.items or not history:
            raise invalid("input", "'input' must be a text or a list of items.")
        form = self.fields.get("text")
        wanted = _nested(form.get("format")) if isinstance(form, dict) else None
        request = request_of(self.fields, history, format_of(wanted, "text.format"), "input")
        return replace(request, files=_files(self.items))


def parse(body: bytes, models: Sequence[str]) -> UnresolvedRequest:
    """Parse a request; raises `Refused`, naming the invalid field."""
    fields = fields_of(body, models)
    previous, message = fields.get("previous_response_id"), fields.get("input")
    if not isinstance(previous, str | None):
        raise invalid("previous_response_id", "'previous_response_id' must be the id of a response.")
    message = instructions_first([{"role": "user", "content": message}] if isinstance(message, str) else message)
    items = message if isinstance(message, list) else []
    return UnresolvedRequest(fields, previous, tuple(items))


def _messages(items: Sequence[JsonValue], known: Mapping[str, Earlier]) -> list[Earlier]:
    earlier: list[Earlier] = []
    for at, item in enumerate(items):
        message = _message(item, f"input[{at}]", known)
        if message is None:
            continue
        last = earlier[-1] if earlier else None
        if message.calls and not message.text and last is not None and last.role == "assistant":
            earlier[-1] = replace(last, calls=(*last.calls, *message.calls))
        else:
            earlier.append(message)
    return earlier


def _message(item: JsonValue, param: str, known: Mapping[str, Earlier]) -> Earlier | None:
    """One item; None for a model's reasoning, which is not used again."""
    match item:
        case {"type": "reasoning"}:
            return None
        case {"type": "item_reference", "id": str(id)}:
            if id not in known:
                raise Refused(400, "item_not_found", f"There is no item {id!r}.", param=param)
            return known[id]
        case {"type": "function_call", "call_id": id}:
            return Earlier("assistant", "", (call_of({"id": id, "function": item}, param),))
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
    """The parts in the format of a chat completion."""
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: JsonValue) -> JsonValue:
    match part:
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


_ID = re.compile(r"(?:resp|msg|fc)_(?P<arrival>\d{1,18})(?:_(?P<place>\d{1,4}))?", re.ASCII)


async def earlier_until(site: Site, caller: Caller, response: str) -> tuple[Earlier, ...]:
    """The conversation up to this response; raises `Refused` if the token has no such response."""
    async with site.database.connection() as conn:
        answer = await _answer(conn, caller, response)
        if answer is None or answer.seq is None:
            message = f"There is no response {response!r}."
            raise Refused(400, "previous_response_not_found", message, param="previous_response_id")
        return tuple(_as_client(await messages.told_until(conn, answer.session_id, answer.seq)))


async def items_by_id(site: Site, caller: Caller, ids: Sequence[str]) -> dict[str, Earlier]:
    """The items with these ids; those of other tokens are left out."""
    found: dict[str, Earlier] = {}
    earlier: dict[MessageId, Earlier] = {}
    async with site.database.connection() as conn:
        for id in ids:
            if (answer := await _answer(conn, caller, id)) is None:
                continue
            if answer.id not in earlier:
                *_, earlier[answer.id] = _as_client(await messages.told_until(conn, answer.session_id, answer.seq or 0))
            if (item := _item(earlier[answer.id], id)) is not None:
                found[id] = item
    return found


async def _answer(conn: Connection, caller: Caller, id: str) -> MessageRow | None:
    match = _ID.fullmatch(id)
    arrival = await inbox.find(conn, CHANNEL, caller.account, InboxId(int(match["arrival"]))) if match else None
    sent = await messages.get(conn, arrival.message_id) if arrival and arrival.message_id else None
    answer = await messages.get(conn, sent.answered_by) if sent and sent.answered_by else None
    return answer if answer is not None and answer.kind == "assistant" else None


def _item(earlier: Earlier, id: str) -> Earlier | None:
    if id.startswith("msg_"):
        return Earlier("assistant", earlier.text)
    match = _ID.fullmatch(id)
    place = int(match["place"] or 0) if match else 0
    return Earlier("assistant", "", earlier.calls[place : place + 1]) if place < len(earlier.calls) else None


def _as_client(rows: Sequence[MessageRow]) -> Iterator[Earlier]:
    """Yield the rows as the client knows them: without instructions, our tools, and messages without an answer."""
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
