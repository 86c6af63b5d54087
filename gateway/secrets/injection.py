"""The boundary: values go into a request only in their one place, to their own hosts, for their own tools.

Code that makes requests for a tool keeps `${secret:NAME}` until the last moment, calls `inject`, sends the result, and
follows no redirect to another origin (`net/api.py`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from gateway.domain.errors import OwnerMustAct
from gateway.secrets.facts import HOST, NAME, Binding, origin_of

REFERENCE = re.compile(r"\$\{secret:(" + NAME + r")\}")
_ANY = re.compile(r"\$\{\s*secret\b", re.IGNORECASE)
_PLAIN_URL = re.compile(rf"(?:https?|postgresql)://{HOST}(?=[/?#]|$)", re.IGNORECASE)
_VISIBLE = re.compile(r"[\t\x20-\x7e]*")


class SecretRefused(Exception):
    """The request may not carry a secret; the text tells the model why, without the value."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to send. `fields` are those of a token request; any other body is `body`."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True, slots=True)
class Usable:
    """A secret for requests, with its binding."""

    value: str = field(repr=False)
    binding: Binding


@dataclass(frozen=True, slots=True)
class Injected:
    """The request with its secrets, never to be logged; `used` names them."""

    request: Outgoing = field(repr=False)
    used: frozenset[str]


def inject(request: Outgoing, tool: str, find: Callable[[str], Usable | None]) -> Injected:
    """Replace references by values; raises `SecretRefused` unless each is in the place it is bound to.

    `find` returns a secret that the person behind the tool may use; None if there is none of this name.
    """
    for where, text in _elsewhere(request):
        if _ANY.search(text) or _ANY.search(unquote(text)):
            raise SecretRefused(f"A secret can't be sent in {where}: only in the header or field it is bound to.")
    used = set[str]()

    def filled(kind: str, name: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            used.add(match[1])
            return _checked(find(match[1]), match[1], request.url, tool, f"{kind}:{name}")

        new = REFERENCE.sub(value, text)
        if _ANY.search(REFERENCE.sub("", text)):
            raise SecretRefused("A reference to a secret is written ${secret:NAME}.")
        return new

    headers = {name: filled("header", name, text) for name, text in request.headers.items()}
    fields = {name: filled("field", name, text) for name, text in request.fields.items()}
    if used and any(name.lower() == "host" for name in headers):
        raise SecretRefused("A request with a secret can't set the header Host.")
    return Injected(replace(request, headers=headers, fields=fields), frozenset(used))


def _elsewhere(request: Outgoing) -> Iterator[tuple[str, str]]:
    yield "the method", request.method
    yield "the address", request.url
    yield "the body", request.body
    for name in request.headers:
        yield "the name of a header", name
    for name in request.fields:
        yield "the name of a field", name


def _checked(secret: Usable | None, name: str, url: str, tool: str, place: str) -> str:
    if secret is None:
        raise SecretRefused(f"There is no secret {name}; its owner sets it with `supaclaw secrets set {name}`.")
    bound = secret.binding
    if tool not in bound.tools:
        raise SecretRefused(f"The secret {name} isn't bound to the tool {tool}.")
    if (origin := _origin(url)) not in bound.hosts:
        raise SecretRefused(f"The secret {name} isn't bound to {origin}.")
    if place.lower() != bound.place.lower():
        raise SecretRefused(f"The secret {name} can only be sent as {bound.place or 'nothing: it has no place'}.")
    if not _VISIBLE.fullmatch(secret.value) and place.startswith("header:"):
        raise SecretRefused(f"The secret {name} contains characters that aren't allowed in a header.")
    return secret.value


def _origin(url: str) -> str:
    """The origin of a plain address, on which all clients agree; raises `SecretRefused`."""
    if plain := _PLAIN_URL.match(url):
        with suppress(OwnerMustAct):
            return origin_of(plain[0])
    raise SecretRefused("A request with a secret needs a plain http(s) address.")
