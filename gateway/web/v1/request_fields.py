"""Fields that requests of both APIs have: content with files, the client's own tools, the format of the answer."""

import base64
import json
import re
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass
from mimetypes import guess_extension
from typing import Any

from pydantic import JsonValue

from gateway.domain.conversation.model import ToolCall, ToolSpec
from gateway.domain.conversation.tools import look_of
from gateway.domain.errors import raising
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.web.files import MAX_FILES
from gateway.web.http.errors import Refused

PIECE = 256 * 1024
NOT_TEXT = "[This result had a file, which was left out: only text is supported.]"
_TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})
FILES = frozenset({"image_url", "file", "input_audio"})


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A file inside a request; `mime` is the client's claim."""

    name: str
    mime: str
    data: bytes

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield its bytes, like those of an upload."""
        for at in range(0, len(self.data), PIECE):
            yield self.data[at : at + PIECE]


def text_of(content: JsonValue, param: str) -> str:
    """The text of a message's content; raises `Refused` for an unsupported type."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise invalid(param, "Content must be a text or a list of parts.")
    texts = [_text(part, f"{param}[{at}]") for at, part in enumerate(content)]
    return "\n".join(text for text in texts if text is not None)


def result_of(content: JsonValue, param: str) -> str:
    """The result of a client's tool as text, with a remark where a file was left out. Raises `Refused`."""
    left_out = isinstance(content, list) and any(kind_of(part) in FILES for part in content)
    return "\n".join(filter(None, (text_of(content, param), NOT_TEXT if left_out else "")))


def files_of(content: JsonValue, param: str) -> tuple[InlineFile, ...]:
    """The files of a message, in order; raises `Refused`."""
    parts = content if isinstance(content, list) else []
    files = tuple(_file(part, f"{param}[{at}]") for at, part in enumerate(parts) if kind_of(part) in FILES)
    if len(files) > MAX_FILES:
        raise invalid(param, f"A message may have at most {MAX_FILES} files.")
    return files


def kind_of(part: JsonValue) -> JsonValue:
    """The type that a part or an item names."""
    return part.get("type") if isinstance(part, dict) else None


def _text(part: JsonValue, param: str) -> str | None:
    kind = kind_of(part)
    key = "refusal" if kind == "refusal" else "text"
    if isinstance(part, dict) and isinstance(kind, str) and kind in _TEXTS and isinstance(text := part.get(key), str):
        return text
    if isinstance(kind, str) and kind in FILES:
        return None
    message = f"Content of type {json.dumps(kind)} is not supported; use text, image_url, file or input_audio."
    raise Refused(400, "unsupported_value", message, param=f"{param}.type")


def _file(part: JsonValue, param: str) -> InlineFile:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _image(url, f"{param}.image_url.url")
        case {"type": "file", "file": {"file_data": str(data), **more}}:
            mime, inside = _data(data, f"{param}.file.file_data")
            name = more.get("filename")
            return InlineFile(name if isinstance(name, str) else f"file{guess_extension(mime) or ''}", mime, inside)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": "wav" | "mp3" as ending}}:
            mime = "audio/wav" if ending == "wav" else "audio/mpeg"
            return InlineFile(f"audio.{ending}", mime, _decoded(data, f"{param}.input_audio.data"))
        case {"type": "file", "file": {"file_id": _}}:
            message = "Send the file itself, as `file_data`."
            raise Refused(400, "unsupported_value", message, param=f"{param}.file.file_id")
        case _:
            raise invalid(param, "This part lacks fields that its type requires.")


def _image(url: str, param: str) -> InlineFile:
    if not url.startswith("data:"):
        message = "Pictures are not fetched from other addresses; send it as a data: URL."
        raise Refused(400, "invalid_image_url", message, param=param)
    mime, inside = _data(url, param)
    return InlineFile(f"picture{guess_extension(mime) or ''}", mime, inside)


def _data(text: str, param: str) -> tuple[str, bytes]:
    """Type and bytes of a data: URL, or of plain base64."""
    if not text.startswith("data:"):
        return "", _decoded(text, param)
    head, _, encoded = text.removeprefix("data:").partition(",")
    mime, *rest = head.split(";")
    if "base64" not in rest:
        raise invalid(param, "A data: URL must be in base64.")
    return mime.lower(), _decoded(encoded, param)


def _decoded(text: str, param: str) -> bytes:
    # in pieces, between which other threads run
    with raising(Refused(400, "invalid_base64", "This is not valid base64.", param=param), ValueError):
        return b"".join(base64.b64decode(text[at : at + PIECE], validate=True) for at in range(0, len(text), PIECE))


MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_PARAMETERS: dict[str, JsonValue] = {"type": "object", "properties": {}}


def tools_of(value: JsonValue) -> tuple[ToolSpec, ...]:
    """The client's functions, in the format of either API; raises `Refused`."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise invalid("tools", f"'tools' must be a list of {MAX_TOOLS} tools at most.")
    found = tuple(_tool(item, f"tools[{at}]") for at, item in enumerate(value))
    if len({tool.name for tool in found}) != len(found):
        raise invalid("tools", "Two tools have the same name.")
    return found


def choice_of(value: JsonValue, tools: Collection[ToolSpec]) -> tuple[bool, str | None]:
    """Whether tools may be called, and the one that must be, as in `ClientOptions`; raises `Refused`."""
    match value:
        case None | "auto":
            return True, None
        case "none":
            return False, None
        case "required" if tools:
            return True, ""
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)} if any(
            tool.name == name for tool in tools
        ):
            return True, name
        case _:
            raise invalid("tool_choice", "'tool_choice' must be none, auto, required or one of the request's tools.")


def refuse_clash(tools: Collection[ToolSpec], own: Collection[str]) -> None:
    """Raise `Refused` if a client's tool would shadow one of the agent's, or could pass for it."""
    looks = set(map(look_of, own))
    for tool in tools:
        if look_of(tool.name) in looks:
            message = f"The agent has a tool {tool.name} of its own; give yours another name, or use a plain token."
            raise Refused(400, "tool_name_taken", message, param="tools")


def call_of(call: JsonValue, param: str) -> ToolCall:
    """A call that the client got in an earlier answer; raises `Refused`."""
    match call:
        case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}} if id:
            return ToolCall(storable(id), storable(name), storable(arguments))
        case _:
            raise invalid(param, "A call needs an id, and a name and arguments as texts.")


def _tool(value: JsonValue, param: str) -> ToolSpec:
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(value, dict) or value.get("type") != "function" or not isinstance(function, dict):
        raise Refused(400, "unsupported_value", "Only tools of type function are supported.", param=f"{param}.type")
    name, description = function.get("name"), function.get("description") or ""
    parameters = function.get("parameters") or _NO_PARAMETERS
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(f"{param}.name", "A tool's name has 1 to 64 letters, digits, _ or -.")
    if not isinstance(description, str) or not isinstance(parameters, dict):
        raise invalid(param, "A tool's description is a text, and its parameters are a JSON Schema object.")
    return ToolSpec(name, storable(description), _clean(parameters), Label.KNOWN)


def _clean(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema without characters that providers refuse, such as half a surrogate pair."""
    plain: dict[str, JsonValue] = json.loads(storable(json.dumps(schema, ensure_ascii=False)))
    return plain


def invalid(param: str | None, message: str) -> Refused:
    """The error for a value that a field can't have."""
    return Refused(400, "invalid_value", message, param=param)


MAX_REFERENCES = 10_000
"""References that one check follows: a small schema can require endless work."""


def format_of(value: JsonValue, param: str) -> JsonObject | None:
    """OpenAI's `response_format`; None for plain text. Raises `Refused`."""
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "json_object"}
        case {"type": "json_schema", "json_schema": {"name": str(), "schema": dict(schema)} as described}:
            _refuse_unusable(schema, f"{param}.json_schema.schema")
            return {"type": "json_schema", "json_schema": described}
        case _:
            message = f"'{param}' must be of type text, json_object, or json_schema with a name and a schema."
            raise Refused(400, "unsupported_value", message, param=param)


def check_answer(wanted: JsonObject, text: str) -> None:
    """Raise `Refused` for an answer in another format. Blocks: call it in a thread."""
    with raising(_missed("it is not valid JSON", text), ValueError, RecursionError):
        answer = json.loads(text)
    match wanted:
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            try:
                flaw = next(_validator(schema).iter_errors(answer), None)
            except Exception as error:
                raise _missed(f"its schema cannot be followed ({type(error).__name__})", text) from error
            if flaw is not None:
                raise _missed(f"{flaw.json_path}: {flaw.message[:300]}", text)
        case _ if not isinstance(answer, dict):
            raise _missed("it is not a JSON object", text)


def _missed(why: str, text: str) -> Refused:
    message = f"The model's answer is not in the requested format: {why}. It said: {text[:500]}"
    return Refused(424, "response_format_missed", message, param="response_format", headers={"x-should-retry": "false"})


def _refuse_unusable(schema: dict[str, JsonValue], param: str) -> None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        reason = getattr(error, "message", "it is nested too deeply")
        raise Refused(400, "invalid_value", f"This is not a JSON Schema: {reason[:300]}", param=param) from error


def _validator(schema: Any) -> Any:
    """A validator that fetches nothing and ignores patterns, which can take forever."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry

    left, known = MAX_REFERENCES, Draft202012Validator.VALIDATORS

    def follow(validator: Any, ref: Any, instance: Any, whole: Any) -> Iterator[Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise RecursionError
        yield from known["$ref"](validator, ref, instance, whole)

    def additional(validator: Any, allowed: Any, instance: Any, whole: Any) -> Iterator[Any]:
        if "patternProperties" not in whole:
            yield from known["additionalProperties"](validator, allowed, instance, whole)

    unchecked = dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties", "$dynamicRef"), lambda *_: None)
    bounded = extend(Draft202012Validator, {**unchecked, "$ref": follow, "additionalProperties": additional})
    return bounded(schema, registry=Registry())
