"""Questions that a server asks a person during a call (elicitation): what they are shown, and how their answer is read.

The words are the server's. Forms have a few simple fields and never ask for secrets: those belong on its own pages.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gateway.domain.conversation.tools import Caller
from gateway.domain.json import Json, JsonObject
from gateway.net.mcp.server import ServerQuestion, visible

MAX_FIELDS, MAX_WORDS, MAX_MESSAGE = 20, 200, 1_500
ATTEMPTS = 3
"""How often a form is shown again because an answer doesn't fit."""
_SECRET = re.compile(
    r"passw|passphrase|passcode|secret|token|api.?key|credential|private.?key|card.?num|cvv|cvc|\bpin\b|\botp\b", re.I
)
_TYPES: Mapping[str, Callable[[str], Json]] = {"string": str, "number": float, "integer": int}
_YES_NO = {"yes": True, "true": True, "no": False, "false": False}

Consult = Callable[[Caller, str, str], Awaitable[str | None]]
"""Asks the person about a call of this tool, in these words; returns what they add to their yes, None for a no."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field; `about` is in the server's words."""

    name: str
    type: str
    about: str
    choices: tuple[str, ...]
    required: bool
    default: Json = None

    @classmethod
    def of(cls, name: str, schema: Json, *, required: bool) -> "FormField":
        """Raises `ValueError` unless it is simple."""
        schema = schema if isinstance(schema, Mapping) else {}
        type, title = str(schema.get("type")), str(schema.get("title") or "")
        if type not in (*_TYPES, "boolean", "array") or not re.fullmatch(r"[\w.-]{1,64}", name):
            raise ValueError("its form has a field that isn't simple")
        if _SECRET.search(f"{name} {title} {schema.get('format')}"):
            raise ValueError("its form asks for a secret")
        about = f"{title} {schema.get('description') or ''}".strip()
        choices = tuple(visible(each)[:MAX_WORDS] for each in _choices(schema.get("items", schema)))
        return cls(name, type, visible(about)[:MAX_WORDS], choices, required, schema.get("default"))

    def read(self, text: str) -> Json:
        """The value that a person wrote; raises `ValueError`."""
        if self.type == "array":
            return [replace(self, type="string").read(each.strip()) for each in text.split(",")]
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.name} is one of: {', '.join(self.choices)}")
        if self.type == "boolean" and text.lower() in _YES_NO:
            return _YES_NO[text.lower()]
        with suppress(KeyError, ValueError):
            return _TYPES[self.type](text)
        kind = {"boolean": "yes or no", "integer": "a whole number"}.get(self.type, "a number")
        raise ValueError(f"{self.name} takes {kind}")

    def __str__(self) -> str:
        kind = " or ".join(self.choices) or self.type
        default = "" if self.default is None else f", {visible(str(self.default))[:MAX_WORDS]} if you leave it out"
        return f"{self.name} ({kind}{default}{'' if self.required else ', optional'}): {self.about}".rstrip(": ")


def _choices(schema: Json) -> list[str]:
    """The values of an enumeration, in any of the forms that the protocol has."""
    if not isinstance(schema, Mapping):
        return []
    titled = _items(schema.get("oneOf")) or _items(schema.get("anyOf"))
    options = [*_items(schema.get("enum")), *(each.get("const") for each in titled if isinstance(each, Mapping))]
    return [str(each) for each in options[:50]]


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list | tuple) else ()


@dataclass(frozen=True, slots=True)
class Form:
    """A question of `host`, as its person sees it."""

    host: str
    question: ServerQuestion
    fields: Sequence[FormField]

    @classmethod
    def of(cls, host: str, question: ServerQuestion) -> "Form":
        """Raises `ValueError`."""
        if question.url and not re.match(r"https://[^@\s]+$", question.url):
            raise ValueError("it names an address that isn't https")
        properties, required = question.schema.get("properties"), _items(question.schema.get("required"))
        fields = properties if isinstance(properties, Mapping) else {}
        if len(fields) > MAX_FIELDS:
            raise ValueError(f"its form has more than {MAX_FIELDS} fields")
        return cls(
            host, question, [FormField.of(name, each, required=name in required) for name, each in fields.items()]
        )

    def preview(self, problem: str = "") -> str:
        """The text of the review."""
        lines = [f"{self.host} asks: {visible(self.question.message)[:MAX_MESSAGE]}"]
        if self.question.url:
            lines.append(f"Open this address yourself, if you expect it, then approve:\n{visible(self.question.url)}")
        if self.fields:
            example = "; ".join(f"{each.name}=…" for each in self.fields)
            how = "the value" if len(self.fields) == 1 else example
            lines += [*map(str, self.fields), f"Approve with {how}, after the number in a chat."]
        return "\n".join([f"That didn't fit: {problem}."] * bool(problem) + lines)

    def read(self, text: str) -> JsonObject:
        """The values in a person's answer; raises `ValueError`."""
        parts = (part.partition("=") for part in re.split(r"[;\n]", text))
        pairs = {name.strip(): value.strip() for name, found, value in parts if found}
        if len(self.fields) == 1 and self.fields[0].name not in pairs and text.strip():
            pairs = {self.fields[0].name: text.strip()}
        values: dict[str, Json] = {}
        for each in self.fields:
            if each.name in pairs:
                values[each.name] = each.read(pairs[each.name])
            elif each.default is not None:
                values[each.name] = each.default
            elif each.required:
                raise ValueError(f"{each.name} is missing")
        return values
