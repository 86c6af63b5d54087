"""A request of the Responses API, as the same kind of request that a chat completion is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from gateway.domain.conversation.inbound import Earlier
from gateway.domain.text.texts import storable
from gateway.web.http.errors import Refused
from gateway.web.v1.answer_format import format_of
from gateway.web.v1.parts import InlineFile, files_of, result_of, text_of
from gateway.web.v1.request import Asked, fields_of, flag, instructions_first, invalid, options_of, split
from gateway.web.v1.tools import call_of

_TEXTS = frozenset({"input_text", "output_text"})


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A request whose references to earlier responses are not looked up yet."""

    fields: Mapping[str, JsonValue]
    previous: str | None
    items: tuple[JsonValue, ...]

    @property
    def references(self) -> tuple[str, ...]:
        """The ids of items that were told before and are not sent again."""
        found = (item.get("id") for item in self.items if _kind(item) == "item_reference" and isinstance(item, dict))
        return tuple(id for id in found if isinstance(id, str))

    def resolved(self, before: Sequence[Earlier], known: Mapping[str, Earlier]) -> Asked:
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
        return Asked(
            model=str(self.fields["model"]),
            text=text,
            files=_files(self.items),
            earlier=earlier,
            options=options_of(self.fields, format_of(wanted, "text.format")),
            results=results,
            stream=flag(self.fields.get("stream"), "stream"),
        )


def parse(body: bytes, models: Sequence[str]) -> Unresolved:
    """Raises `Refused`, naming the field."""
    fields = fields_of(body, models)
    previous, said = fields.get("previous_response_id"), fields.get("input")
    if not isinstance(previous, str | None):
        raise invalid("previous_response_id", "'previous_response_id' must be the id of a response.")
    said = instructions_first([{"role": "user", "content": said}] if isinstance(said, str) else said)
    items = said if isinstance(said, list) else []
    return Unresolved(fields, previous, tuple(items))


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
