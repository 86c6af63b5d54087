"""An MCP server: its address, its tools as it defines them and as a model is shown them, and its results.

These types need no SDK; every word of a definition is the server's."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from urllib.parse import urlsplit

from gateway.domain.json import Json, JsonObject
from gateway.sandbox.workshop import Running

STDIO, STDIO_WITH_NETWORK = "stdio:", "stdio-net:"
"""Prefixes of the addresses of programs: without network, and with one to the hosts that follow the name."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """A person's sign-in at a server by OAuth; `stored` is "" before the first one. `client_id` is a registered one."""

    stored: str = field(repr=False)
    save: Callable[[str], Awaitable[None]]
    """Stores it, before a new token is used."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class McpEndpoint:
    """A server as one person reaches it; `headers` hold its credentials, or the variables of a program."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    launch: Callable[[], Awaitable[Running]] | None = field(default=None, repr=False, compare=False)
    """Starts the server in the jail if it is a program."""
    sign_in: SignIn | None = field(default=None, repr=False, compare=False)
    old_transport: bool = False
    """Whether it speaks HTTP+SSE, of before 2025."""

    @property
    def host(self) -> str:
        """For messages."""
        return urlsplit(self.url).hostname or self.name


@dataclass(frozen=True, slots=True)
class Blob:
    """A picture, a sound or a file."""

    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class McpResult:
    """The result of a call; `failed` if the tool says so, `prompt` if it is a prompt's text."""

    text: str
    blobs: tuple[Blob, ...] = ()
    structured: Json = None
    failed: bool = False
    prompt: bool = False


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A question of a server to a person during a call: the fields of a form, or an address to open.

    `rest`: with which the call goes on from here on another connection; "" if its server has to be there all the time.
    """

    message: str
    schema: JsonObject
    url: str = ""
    rest: str = ""


Answer = Callable[[ServerQuestion], Awaitable[JsonObject | None]]
"""Asks the person; returns the values of the fields, None for a no."""
Report = Callable[[str], None]
"""Shows how far a call is, in the server's words."""

MAX_NAME = 64
MAX_DESCRIPTION, MAX_WORDS, MAX_SCHEMA = 1_000, 200, 4_000
"""Characters that a model is shown of a description, the description of an argument, and all arguments."""
MAX_BYTES = 64 * 1024
"""Of a definition as it is sent; longer ones are left out."""
_DEPTH, _NODES = 6, 300
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_NUMBERS = frozenset({"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"})
_CHOICES = ("anyOf", "oneOf", "allOf")
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SEEN = frozenset("\n\t\u200c\u200d")
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its server describes it, in full. `url` is that of the server, without its query."""

    server: str
    url: str
    name: str
    description: str
    parameters: JsonObject

    @property
    def content(self) -> bytes:
        """The definition in canonical bytes, for its hash."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @property
    def sha256(self) -> str:
        """The hash that a confirmation covers."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def tool_name(self) -> str:
        """The name for our model, unique among our tools and those of all servers."""
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", self.name)
        full = f"mcp_{self.server}_{plain}"
        if plain == self.name and len(full) <= MAX_NAME:
            return full
        return f"{full[: MAX_NAME - 9]}_{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    @property
    def host(self) -> str:
        """The host whose words these are."""
        return urlsplit(self.url).netloc

    @property
    def shown_description(self) -> str:
        """The description as the model reads it."""
        return visible(self.description)[:MAX_DESCRIPTION]

    @property
    def shown_parameters(self) -> JsonObject:
        """The arguments in a form that any provider takes: a schema that one refuses would fail whole prompts."""
        for words in (MAX_WORDS, 0):
            shown = _Clipping(self.parameters, words).root()
            if len(json.dumps(shown)) <= MAX_SCHEMA:
                return shown
        return {"type": "object", "properties": {}}


def visible(text: str) -> str:
    """The text without invisible characters."""
    return "".join(char for char in text if char in _SEEN or not _hidden(char))


def visible_json(value: Json) -> Json:
    """The value with `visible` applied to every text in it."""
    match value:
        case str():
            return visible(value)
        case Mapping():
            return {visible(key): visible_json(item) for key, item in value.items()}
        case list() | tuple():
            return [visible_json(item) for item in value]
        case _:
            return value


def _hidden(char: str) -> bool:
    if char.isascii():
        return not char.isprintable()
    selector = "\ufe00" <= char <= "\ufe0f" or "\U000e0000" <= char <= "\U000e0fff"
    return selector or char in _BLANKS or unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs"}


def public_url(url: str) -> str:
    """The address without the parts that may hold a credential."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class _Clipping:
    """Rewrites one schema: references resolved, known keywords only, within a depth and a size."""

    def __init__(self, schema: JsonObject, words: int) -> None:
        self._schema, self._words, self._left = schema, words, _NODES

    def root(self) -> JsonObject:
        shown = self._node(self._schema, 0)
        fields = {key: value for key, value in shown.items() if key in {"properties", "required", "description"}}
        return {"type": "object", "properties": {}, **fields}

    def _node(self, node: Json, depth: int) -> dict[str, Json]:
        self._left -= 1
        if not isinstance(node, Mapping) or depth > _DEPTH or self._left < 0:
            return {}
        if isinstance(reference := node.get("$ref"), str):
            return self._node(self._referred(reference), depth + 1)
        shown: dict[str, Json] = {key: _plain(value) for key, value in node.items() if _is_valid(key, value)}
        if self._words and isinstance(text := node.get("description"), str):
            shown["description"] = visible(text)[: self._words]
        if isinstance(fields := node.get("properties"), Mapping):
            properties = {key: self._node(each, depth + 1) for key, each in fields.items() if _KEY.fullmatch(key)}
            shown["properties"] = properties
            if isinstance(required := node.get("required"), list):
                shown["required"] = [name for name in properties if name in required]
        if isinstance(items := node.get("items"), Mapping):
            shown["items"] = self._node(items, depth + 1)
        elif shown.get("type") == "array":
            shown["items"] = {}
        for key in _CHOICES:
            if isinstance(choices := node.get(key), list):
                shown[key] = [self._node(each, depth + 1) for each in choices[:20]] or [{}]
        return shown

    def _referred(self, reference: str) -> Json:
        found: Json = self._schema
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


def _is_valid(keyword: str, value: Json) -> bool:
    match keyword, value:
        case ("type", str()) | ("type", [str(), *_]):
            return _TYPES.issuperset([value] if isinstance(value, str) else map(str, value))
        case ("enum", [_, *_]) | (("const" | "default"), _) | ("format", str()):
            return True
        case _, int() | float():
            return keyword in _NUMBERS
    return False


def _plain(value: Json) -> Json:
    """The value of a keyword, without hidden characters."""
    if isinstance(value, str):
        return visible(value)[:MAX_WORDS]
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value[:100]]
    return None if isinstance(value, Mapping) else value
