"""The form of config.json: a field for every key of its JSON Schema, and the document with typed values."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from gateway.config.channels import channel_names, settings_model
from gateway.config.editing.config_file import section_of
from gateway.config.editing.hidden import HIDDEN, is_secret, masked
from gateway.config.load import overruled, variable_of
from gateway.config.model import Config, allow_references, json_schema
from gateway.config.problems import dotted
from gateway.domain.json import OBJECT, fields_of, json_or_text, map_texts, value_at

Node = Mapping[str, JsonValue]
Kind = Literal["text", "number", "choice", "list", "json", "secret"]

_KINDS: Mapping[str, Kind] = {"integer": "number", "number": "number", "array": "list", "string": "text"}
_PLAIN = re.compile(
    r"(owner|budgets|models\.providers)\..*|models\.(primary|fallbacks)|heartbeat\.(every|active_hours)"
    r"|channels\..*(\.enabled|token|\.access|\.allow)"
)
"""The keys that people change; the others are advanced."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key as people edit it. `text` is "" for a secret, and while the default is used.

    In a nullable field, `null` means null. A field that is set by a `variable` can't be edited.
    """

    path: tuple[str, ...]
    kind: Kind
    about: str
    default: str
    nullable: bool = False
    choices: tuple[str, ...] = ()
    text: str = ""
    is_set: bool = False
    variable: str | None = None

    @property
    def key(self) -> str:
        """The dotted key."""
        return dotted(self.path)

    @property
    def advanced(self) -> bool:
        """Whether few people change this key."""
        return _PLAIN.fullmatch(self.key) is None


def fields(raw: Mapping[str, JsonValue], environ: Mapping[str, str]) -> Iterator[Field]:
    """Yield every field in the schema's order, with the value from the environment or the file."""
    root, defaults = OBJECT.validate_python(json_schema()), Config().model_dump(mode="json")
    stated = overruled(raw, environ)
    for path, node in _leaves((), root, fields_of(root.get("$defs")), dict(raw)):
        default = value_at(defaults, path) if value_at(defaults, path) is not None else node.get("default")
        field = replace(_field(path, node, _text(default)), variable=variable_of(dotted(path), environ))
        value = value_at(stated, path)
        is_set = path[-1] in fields_of(value_at(stated, path[:-1]))
        yield replace(field, text="null" if is_set and value is None else _shown(field, value), is_set=is_set)


def filled(raw: Mapping[str, JsonValue], form: Sequence[Field], typed: Mapping[str, str]) -> dict[str, JsonValue]:
    """`raw` with the typed values; the key of an unchanged field stays exactly as it is."""
    document = OBJECT.validate_python(map_texts(dict(raw), lambda _, text: text))
    for field in form:
        text = typed.get(field.key, field.text).replace("\r\n", "\n").strip()
        if text != field.text.strip():
            section, name = section_of(document, field.path)
            if text:
                section[name] = _value(field, text)
            else:  # its section stays, since an empty one can enable a channel
                section.pop(name, None)
    return document


def _leaves(path: tuple[str, ...], node: Node, defs: Node, raw: JsonValue) -> Iterator[tuple[tuple[str, ...], Node]]:
    if isinstance(reference := node.get("$ref"), str):
        node = {**fields_of(defs[reference.rpartition("/")[2]]), **{k: v for k, v in node.items() if k != "$ref"}}
    if path == ("channels",):
        for name in channel_names():
            schema = OBJECT.validate_python(settings_model(name).model_json_schema())
            yield from _leaves((*path, name), fields_of(allow_references(schema)), fields_of(schema.get("$defs")), raw)
    elif "properties" in node:
        for name, inner in fields_of(node["properties"]).items():
            if name != "$schema":
                yield from _leaves((*path, name), fields_of(inner), defs, raw)
        if path == ("owner",):
            about: JsonValue = "Your own id there, read at the first start; `supaclaw owner set` changes it later."
            yield from (((*path, name), {"type": "string", "description": about}) for name in channel_names())
    elif path == ("models", "providers") and isinstance(each := node.get("additionalProperties"), dict):
        for name in fields_of(value_at(raw, path)):
            yield from _leaves((*path, name), each, defs, raw)
    else:
        yield path, node


def _field(path: tuple[str, ...], node: Node, default: str) -> Field:
    first = next(_alternatives(node), {})
    about = str(node.get("description", ""))
    field = Field(path, "text", about, default, any(each.get("type") == "null" for each in _listed(node)))
    if first.get("format") == "password":
        return replace(field, kind="secret")
    if isinstance(choices := first.get("enum"), list):
        return replace(field, kind="choice", choices=tuple(map(str, choices)))
    if first.get("type") == "boolean":
        return replace(field, kind="choice", choices=("true", "false"))
    return replace(field, kind=_KINDS.get(str(first.get("type")), "json"))


def _listed(node: Node) -> Iterator[Node]:
    if isinstance(inner := node.get("anyOf"), list):
        for each in inner:
            yield from _listed(fields_of(each))
    else:
        yield node


def _alternatives(node: Node) -> Iterator[Node]:
    """The alternatives of a value, without null and references."""
    return (one for one in _listed(node) if one.get("type") != "null" and "env|secret" not in str(one.get("pattern")))


def _shown(field: Field, value: JsonValue) -> str:
    if isinstance(value, str) and (is_secret(field.path, value) or (field.kind == "secret" and field.variable)):
        return "" if field.kind == "secret" else HIDDEN
    return _text(masked(value, field.path))


def _text(value: JsonValue) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case list() if all(isinstance(each, str | int) for each in value):
            return "\n".join(map(str, value))
        case dict() | list():
            return json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        case _:
            return json.dumps(value)


def _value(field: Field, text: str) -> JsonValue:
    """The typed value for the file; unparsable text stays a text, which validation refuses with the key."""
    if text == "null" and field.nullable:
        return None
    if field.kind == "list":
        return [line.strip() for line in text.split("\n") if line.strip()]
    is_json = field.kind in ("number", "json") or (field.kind == "choice" and text in ("true", "false"))
    return json_or_text(text) if is_json else text
