"""Questions that a server asks a person during a call (elicitation): what they are shown, and how their answer is read.

The words are the server's. Forms have a few simple fields and never ask for secrets: those belong on its own pages.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from gateway.domain.conversation.tools import Caller
from gateway.domain.json import JsonObject
from gateway.domain.text.marks import quoted
from gateway.net.mcp.server import ServerQuestion, visible

MAX_FIELDS, MAX_CHOICES, MAX_WORDS, MAX_MESSAGE = 20, 50, 200, 1_500
ATTEMPTS = 3
"""How often a form is shown again because an answer doesn't fit."""
_SECRET = re.compile(
    r"(?i)pass(w|phrase|code)|kennwort|contrase|mot de passe|senha|парол|密码|secret|token|(api|private).?key"
    r"|credential|card.?num|cv[vc]|(?<![a-z])(pin|otp)(?![a-z])"
)
_TYPES: Mapping[str, type] = {"number": float, "integer": int, "boolean": bool}


class Consult:
    """Puts the questions of calls to a person; this one has nobody to ask."""

    async def ask(self, _caller: Caller, _tool: str, _preview: str, _number: int, _rest: str, /) -> str | None:
        """Ask about a call of this tool, in these words; returns what the person adds to their yes, None for a no.

        The number is the question's in its call. With the rest of the call, from this question on, it can go on after a
        crash.
        """
        return None

    async def rest_of(self, _caller: Caller, /) -> tuple[str, int]:
        """The rest of a call that a crash interrupted while it only waited, and the number of its first question.

        ("", 0) for any other call.
        """
        return "", 0

    def report(self, _caller: Caller, _progress: str, /) -> None:
        """Show how far a call is."""


class _Option(BaseModel, defer_build=True):
    const: str


class _Choices(BaseModel, defer_build=True):
    enum: tuple[str, ...] = Field((), max_length=MAX_CHOICES)
    titled: tuple[_Option, ...] = Field((), max_length=MAX_CHOICES, validation_alias=AliasChoices("oneOf", "anyOf"))

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.enum, *(each.const for each in self.titled))


class FormField(_Choices):
    """A field as the protocol describes it; several of its `items` may be chosen."""

    type: Literal["string", "number", "integer", "boolean", "array"]
    title: str = ""
    description: str = ""
    format: str = ""
    items: _Choices = _Choices()
    default: JsonValue = None

    def shown(self, name: str, *, optional: bool) -> str:
        """The field in one line."""
        kind = " or ".join(self.names + self.items.names) or self.format or self.type
        default = "" if self.default is None else f", {self.default} if you leave it out"
        words = f"{name} ({kind}{default}{', optional' * optional}): {self.title} {self.description}"
        return visible(words)[:MAX_WORDS].rstrip(": ")

    def read(self, name: str, text: str) -> JsonValue:
        """The value that a person wrote; raises `ValueError`."""
        choices, parts = self.names or self.items.names, re.split(r"\s*,\s*", text) if self.type == "array" else [text]
        if choices and not set(parts) <= set(choices):
            raise ValueError(f"{name} is one of: {', '.join(choices)}")
        if self.type == "array":
            return list(parts)
        with suppress(ValidationError):
            value: JsonValue = TypeAdapter(_TYPES.get(self.type, str)).validate_python(text)
            return value
        raise ValueError(f"{name} takes {'yes or no' if self.type == 'boolean' else f'a number ({self.type})'}")


class _Schema(BaseModel, defer_build=True):
    properties: Mapping[Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")], FormField] = Field({}, max_length=MAX_FIELDS)
    required: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Form:
    """A question of `host`, as its person sees it."""

    host: str
    question: ServerQuestion
    schema: _Schema

    @classmethod
    def of(cls, host: str, question: ServerQuestion) -> Self:
        """Raises `ValueError` for a question that nobody should answer."""
        schema = _Schema.model_validate(question.schema)
        if question.url and not re.fullmatch(r"https://[^@\s]+", question.url):
            raise ValueError("it names an address that isn't https")
        form = cls(host, question, schema)
        if schema.properties and _SECRET.search(form.words):
            raise ValueError("its form asks for a secret")
        return form

    @property
    def words(self) -> str:
        """The server's words, as the person sees them."""
        fields, required = self.schema.properties, self.schema.required
        shown = [each.shown(name, optional=name not in required) for name, each in fields.items()]
        return "\n".join([visible(self.question.message)[:MAX_MESSAGE], *shown])

    def preview(self, problem: str) -> str:
        """The text of the review; `problem` is that of the answer before."""
        lines = [f"That didn't fit: {problem}."] * bool(problem)
        lines += [f"{self.host} asks:", quoted(self.words)]
        if self.question.url:
            lines.append(f"Open this address yourself, if you expect it, then approve:\n{visible(self.question.url)}")
        if fields := self.schema.properties:
            how = "the value" if len(fields) == 1 else "; ".join(f"{name}=…" for name in fields)
            lines.append(f"Approve with {how}, after the number in a chat.")
        return "\n".join(lines)

    def read(self, text: str) -> JsonObject:
        """The values in a person's answer; raises `ValueError`."""
        fields, parts = self.schema.properties, (part.partition("=") for part in re.split(r"[;\n]", text))
        given = {name.strip(): value.strip() for name, found, value in parts if found}
        if len(fields) == 1 and not given.keys() & fields.keys() and text.strip():
            given = dict.fromkeys(fields, text.strip())
        values: dict[str, JsonValue] = {name: each.default for name, each in fields.items() if each.default is not None}
        values |= {name: each.read(name, given[name]) for name, each in fields.items() if name in given}
        if missing := [name for name in fields if name in self.schema.required - values.keys()]:
            raise ValueError(f"{missing[0]} is missing")
        return values
