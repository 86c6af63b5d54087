"""OpenAPI documents as operations. They are others' words: bounded, and only plain ones are kept."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urljoin

from gateway.domain.conversation.tools import Operation, RequestPart, RequestSlot, ToolClass
from gateway.domain.errors import raising
from gateway.domain.json import Json, JsonObject
from gateway.domain.text.texts import one_line
from gateway.workspace.skills.parsing import BadSkill, plain_yaml
from gateway.workspace.tool_files.declaration import TOKEN

MAX_OPERATIONS, MAX_YAML = 64, 256 * 1024
MAX_NODES, MAX_DEPTH, MAX_WORDS = 300, 6, 300
"""Of one operation's schema, beyond which it says less; and characters of a description."""
METHODS = ("get", "head", "post", "put", "patch", "delete")
TYPES = ("string", "integer", "number", "boolean", "array", "object")

_NAME = re.compile(r"[A-Za-z0-9_$@][A-Za-z0-9_.$@:-]{0,63}")
"""Of a field of a body: it is sent as it stands, so it cannot be shown otherwise."""
_PATH = re.compile(r"/(?:[^?#\s\\{}]|\{[^{}/\s]{1,100}\})*")
_PARTS: Mapping[object, RequestPart] = {"path": "path", "query": "query", "header": "header"}


class Raw(NamedTuple):
    """An operation as it is written; `shared` are the parameters that its path has for all."""

    method: str
    path: str
    fields: Mapping[str, object]
    shared: Sequence[object] = ()


class OperationLimits(NamedTuple):
    """Which operations are wanted, of what class, with names of at most `room` characters; `taken` are headers."""

    room: int
    taken: Set[str]
    chosen: Sequence[str]
    classes: Mapping[str, ToolClass]


class LeftOut(Exception):
    """An operation that cannot be called from here; the text says why."""


def read(data: bytes, name: str) -> Mapping[str, object]:
    """The document, as JSON or YAML; raises `BadSkill`."""
    with raising(BadSkill(f"{name} is neither JSON nor YAML."), ValueError, RecursionError):
        text = data.decode().lstrip("\ufeff \t\r\n")
        if not text.startswith("{") and len(text) > MAX_YAML:
            raise BadSkill(f"{name} is longer than {MAX_YAML >> 10} kB; give it as JSON.")
        document = json.loads(text) if text.startswith("{") else plain_yaml(text, name)
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3."):
        raise BadSkill(f"{name} is no OpenAPI document of version 3.")
    return document


def server_of(document: Mapping[str, object], fetched_from: str) -> str:
    """The address that it names first, with the defaults of its variables; "" if none."""
    servers = document.get("servers")
    first = _map(servers[0]) if isinstance(servers, list) and servers else {}
    url = str(first.get("url", ""))
    for name, variable in _map(first.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(_map(variable).get("default", "")))
    with suppress(ValueError):
        return urljoin(fetched_from, url)
    return ""


@dataclass(frozen=True, slots=True)
class Offered:
    """The operations of a document, and those that are left out, each with the reason."""

    operations: tuple[Operation, ...]
    left_out: tuple[str, ...] = ()


def offered(found: Iterable[Raw], document: Mapping[str, object], config: OperationLimits) -> Offered:
    """Those that are chosen, or all of them. Raises `BadSkill`."""
    operations, left_out, unseen = dict[str, Operation](), list[str](), {*config.chosen, *config.classes}
    for raw in found:
        own = str(raw.fields.get("operationId") or f"{raw.method}_{raw.path}")
        name = re.sub(r"[^A-Za-z0-9]+", "_", own).strip("_")[: config.room] or "call"
        if config.chosen and not {own, name} & set(config.chosen):
            continue
        unseen -= {own, name}
        kind = config.classes.get(own, config.classes.get(name))
        if name in operations:
            raise BadSkill(f"Two of its operations would be called {name}; choose others in config.operations.")
        try:
            operations[name] = _Reader(document, config.taken).operation(name, raw, kind)
        except LeftOut as reason:
            left_out.append(f"{name} ({reason})")
        if len(operations) > MAX_OPERATIONS:
            raise BadSkill(f"It has more than {MAX_OPERATIONS} operations; list what you need in config.operations.")
    if unseen:
        raise BadSkill(f"It has no operation {one_line(min(unseen), 80)!r}.")
    return Offered(tuple(operations.values()), tuple(left_out[:MAX_OPERATIONS]))


@dataclass(slots=True)
class _Given:
    """Arguments as they are collected, each under a name of its own that every provider takes."""

    taken: Set[str]
    slots: dict[str, RequestSlot] = field(default_factory=dict)
    properties: dict[str, Json] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)

    def add(self, name: str, part: RequestPart, schema: Json, *, required: bool, wire: str | None = None) -> None:
        """One more; none for a header that is not the model's to set."""
        if part == "header" and not re.fullmatch(TOKEN, name):
            raise LeftOut("one of its headers has no valid name")
        if part == "header" and (name.lower() in self.taken or name.lower().startswith("proxy-")):
            return
        argument = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64]
        if argument in self.slots:
            argument = f"{part}_{argument}"[:64]
        if argument in self.slots:
            raise LeftOut("two of its parameters share a name")
        self.slots[argument], self.properties[argument] = RequestSlot(part, name if wire is None else wire), schema
        self.required += [argument] if required else []

    def operation(self, name: str, about: str, method: str, path: str, kind: ToolClass | None) -> Operation:
        """With these arguments; every place in the path has to be one of them."""
        filled = {slot.name for slot in self.slots.values() if slot.part == "path"}
        if not _PATH.fullmatch(path) or set(re.findall(r"\{([^{}]*)\}", path)) != filled or ".." in path.split("/"):
            raise LeftOut("its path can't be filled in")
        schema: JsonObject = {"type": "object", "properties": self.properties, "required": self.required}
        return Operation(name, about, method.upper(), path, self.slots, schema, kind)


@dataclass(slots=True)
class _Reader:
    """Resolves references within the document, up to a bound: they can make a small text a huge one, or endless."""

    document: Mapping[str, object]
    taken: Set[str]
    nodes: int = 0

    def operation(self, name: str, raw: Raw, kind: ToolClass | None) -> Operation:
        if raw.fields.get("servers"):
            raise LeftOut("it has a server of its own")
        given = _Given(self.taken)
        # What an operation says of a parameter replaces what its path says.
        declared = [self.resolved(each) for each in (*raw.shared, *_list(raw.fields, "parameters"))]
        for each in {(str(one.get("in")), str(one.get("name"))): one for one in declared}.values():
            self.parameter(given, each)
        if body := self.resolved(raw.fields.get("requestBody")):
            self.body(given, body)
        words = ". ".join(str(raw.fields[key]) for key in ("summary", "description") if raw.fields.get(key))
        return given.operation(name, one_line(words, MAX_WORDS), raw.method, raw.path, kind)

    def parameter(self, given: _Given, raw: Mapping[str, object]) -> None:
        part, required = _PARTS.get(raw.get("in")), _true(raw.get("required"))
        if part is None:
            if required:
                raise LeftOut("it needs a cookie")
            return
        schema = {**self.schema(raw.get("schema")), **_words(raw)}
        given.add(str(raw.get("name", ""))[:100], part, schema, required=required or part == "path")

    def body(self, given: _Given, raw: Mapping[str, object]) -> None:
        content, required = _map(raw.get("content")), _true(raw.get("required"))
        if (media := content.get("application/json")) is None:
            if required:
                raise LeftOut("its body isn't JSON")
            return
        given.add("body", "body", self.schema(_map(media).get("schema")), required=required, wire="")

    def resolved(self, raw: object) -> Mapping[str, object]:
        for _ in range(MAX_DEPTH):
            node = _map(raw)
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            raw = self._at(reference)
        return {}

    def schema(self, raw: object, depth: int = 0) -> dict[str, Json]:
        """The parts of a schema that help a model, cut if deep or wide; `required` names only listed properties."""
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            return {}
        node = self.resolved(raw)
        type, found = _type(node.get("type")), _words(node)
        if type:
            found["type"] = type
        if type in ("string", None) and isinstance(enum := node.get("enum"), list):
            found["enum"] = [one_line(str(each), 100) for each in enum[:50]]
        if "items" in node or type == "array":
            found["items"] = self.schema(node.get("items"), depth + 1)
        if properties := _map(node.get("properties")):
            plain = [(name, each) for name, each in properties.items() if _NAME.fullmatch(str(name))][:100]
            listed = {str(name): self.schema(each, depth + 1) for name, each in plain}
            needed = [each for each in _list(node, "required") if isinstance(each, str) and each in listed]
            found |= {"properties": listed, **({"required": needed} if needed else {})}
        for key in ("anyOf", "oneOf", "allOf"):
            if options := [self.schema(each, depth + 1) for each in _list(node, key)[:10]]:
                found[key] = options
        return found

    def _at(self, reference: str) -> object:
        node: object = self.document if reference.startswith("#/") else None
        for part in reference[2:].split("/"):
            node = _map(node).get(part.replace("~1", "/").replace("~0", "~"))
        return node


def raw_operations(document: Mapping[str, object]) -> Iterator[Raw]:
    """Yield its operations as they are written."""
    for path, item in _map(document.get("paths")).items():
        for method in METHODS:
            if isinstance(fields := _map(item).get(method), dict):
                yield Raw(method, str(path)[:500], fields, _list(_map(item), "parameters"))


def _words(node: Mapping[str, object]) -> dict[str, Json]:
    words = one_line(str(node.get("description") or ""), MAX_WORDS)
    return {"description": words} if words else {}


def _type(value: object) -> str | None:
    """The first that is not null, which later versions list."""
    types = value if isinstance(value, list) else [value]
    return next((str(each) for each in types if each in TYPES), None)


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(node: Mapping[str, object], key: str) -> list[object]:
    value = node.get(key)
    return value if isinstance(value, list) else []


def _true(value: object) -> bool:
    return value is True or value == "true"
