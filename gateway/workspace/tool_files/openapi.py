"""OpenAPI documents as operations. They are others' words: bounded, and only plain ones are kept."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urljoin

from gateway.domain.json import Json, JsonObject
from gateway.domain.operations import Operation, Part, Slot
from gateway.domain.texts import one_line
from gateway.domain.tools import ToolClass
from gateway.workspace.skills.folder import BadSkill
from gateway.workspace.skills.parsing import plain_yaml

MAX_OPERATIONS, MAX_YAML = 64, 256 * 1024
MAX_NODES, MAX_DEPTH, MAX_WORDS = 300, 6, 300
"""Of one operation's schema, beyond which it says less; and characters of a description."""
METHODS = ("get", "head", "post", "put", "patch", "delete")
TYPES = ("string", "integer", "number", "boolean", "array", "object")

_PATH = re.compile(r"(/[^?#\s\\{}]*|/?\{[^{}/\s]{1,100}\})*")
_PARTS: Mapping[object, Part] = {"path": "path", "query": "query", "header": "header"}


class LeftOut(Exception):
    """An operation that cannot be called from here; the text says why."""


def read(data: bytes, name: str) -> Mapping[str, object]:
    """The document, as JSON or YAML; raises `BadSkill`."""
    try:
        text = data.decode().lstrip("\ufeff \t\r\n")
        if not text.startswith("{") and len(text) > MAX_YAML:
            raise BadSkill(f"{name} is longer than {MAX_YAML >> 10} kB; give it as JSON.")
        document = json.loads(text) if text.startswith("{") else plain_yaml(text, name)
    except (ValueError, RecursionError) as error:
        raise BadSkill(f"{name} is neither JSON nor YAML.") from error
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
    try:
        return urljoin(fetched_from, url)
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class Offered:
    """The operations of a document, and those that are left out, each with the reason."""

    operations: tuple[Operation, ...]
    left_out: tuple[str, ...] = ()


def offered(
    document: Mapping[str, object], chosen: Sequence[str], classes: Mapping[str, ToolClass], room: int
) -> Offered:
    """Those that are chosen, or all of them; names have at most `room` characters. Raises `BadSkill`."""
    found, left_out, unseen = list[Operation](), list[str](), set(chosen)
    for path, shared, method, raw in _each(document):
        own = str(raw.get("operationId") or f"{method}_{path}")
        name = plain_name(own, room)
        if chosen and not {own, name} & set(chosen):
            continue
        unseen -= {own, name}
        try:
            kind = classes.get(own, classes.get(name))
            found.append(
                _Reader(document).operation(name, method, path, [*shared, *_list(raw, "parameters")], raw, kind)
            )
        except LeftOut as reason:
            left_out.append(f"{name} ({reason})")
        if len(found) > MAX_OPERATIONS:
            raise BadSkill(f"It has more than {MAX_OPERATIONS} operations; list what you need in config.operations.")
    if unseen:
        raise BadSkill(f"There is no operation {one_line(min(unseen), 80)!r} in its document.")
    return Offered(distinct(found), tuple(left_out[:MAX_OPERATIONS]))


def distinct(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The same, if no two share a name; raises `BadSkill`."""
    names = set[str]()
    for each in operations:
        if each.name in names:
            raise BadSkill(f"Two of its operations would be called {each.name}; choose one in config.operations.")
        names.add(each.name)
    return tuple(operations)


def plain_name(text: str, room: int) -> str:
    """A name that every provider takes."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:room] or "call"


@dataclass(slots=True)
class Given:
    """Arguments as they are collected, each under a name of its own that every provider takes."""

    slots: dict[str, Slot] = field(default_factory=dict)
    properties: dict[str, Json] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)

    def add(self, name: str, part: Part, schema: Json, *, required: bool, wire: str | None = None) -> None:
        """One more."""
        argument = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64]
        if argument in self.slots:
            argument = f"{part}_{argument}"[:64]
        if argument in self.slots:
            raise LeftOut("two of its parameters share a name")
        self.slots[argument], self.properties[argument] = Slot(part, name if wire is None else wire), schema
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
    nodes: int = 0

    def operation(
        self,
        name: str,
        method: str,
        path: str,
        parameters: Sequence[object],
        raw: Mapping[str, object],
        kind: ToolClass | None,
    ) -> Operation:
        given, declared = Given(), [self.resolved(each) for each in parameters]
        if raw.get("servers"):
            raise LeftOut("it has a server of its own")
        # What an operation says of a parameter replaces what its path says.
        for each in {(str(one.get("in")), str(one.get("name"))): one for one in declared}.values():
            self.parameter(given, each)
        if body := self.resolved(raw.get("requestBody")):
            self.body(given, body)
        words = ". ".join(str(raw[key]) for key in ("summary", "description") if raw.get(key))
        return given.operation(name, one_line(words, MAX_WORDS), method, path, kind)

    def parameter(self, given: Given, raw: Mapping[str, object]) -> None:
        part, required = _PARTS.get(raw.get("in")), _true(raw.get("required"))
        if part is None:
            if required:
                raise LeftOut("it needs a cookie")
            return
        schema = {**self.schema(raw.get("schema")), **_words(raw)}
        given.add(str(raw.get("name", ""))[:100], part, schema, required=required or part == "path")

    def body(self, given: Given, raw: Mapping[str, object]) -> None:
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
        """What of it helps a model: less where it is deep or wide, never more than was asked for."""
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
            listed = {str(name)[:100]: self.schema(each, depth + 1) for name, each in [*properties.items()][:100]}
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


def _each(document: Mapping[str, object]) -> Iterator[tuple[str, Sequence[object], str, Mapping[str, object]]]:
    """Yield path, the parameters that all of its operations share, method and operation."""
    for path, item in _map(document.get("paths")).items():
        for method in METHODS:
            if isinstance(raw := _map(item).get(method), dict):
                yield str(path)[:500], _list(_map(item), "parameters"), method, raw


def _words(node: Mapping[str, object]) -> dict[str, Json]:
    words = one_line(str(node.get("description") or ""), MAX_WORDS)
    return {"description": words} if words else {}


def _type(value: object) -> str | None:
    """The first that is not null, which later versions list."""
    for each in value if isinstance(value, list) else [value]:
        if each in TYPES:
            return str(each)
    return None


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(node: Mapping[str, object], key: str) -> list[object]:
    value = node.get(key)
    return value if isinstance(value, list) else []


def _true(value: object) -> bool:
    return value is True or value == "true"
