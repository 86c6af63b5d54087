"""Formats validation errors for people: the key's path, then what is allowed; never the value."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.domain.json import KeyPath
from gateway.domain.text.texts import first_of

SHOWN = 20

_ALLOWED = {
    "missing": "is required",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must look like {pattern}",
    "date_from_datetime_parsing": "must be a day like 2026-03-01",
    "finite_number": "must be a finite number",
    "value_error": "{error}",
}
_WRONG_KIND = {"type", "parsing", "from_float", "attributes_type"}
_KINDS = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": 'must be a text in "quotes"',
    "uuid": "must be a complete id",
    **dict.fromkeys(("dict", "model", "mapping"), "must be an object {{ … }}"),
    **dict.fromkeys(("list", "tuple"), "must be a list [ … ]"),
}


def explain(error: ValidationError, root: type[BaseModel], prefix: KeyPath = ()) -> list[str]:
    """One line for each of the first `SHOWN` problems; `prefix` is the path of `root` in config.json."""
    problems = error.errors(include_url=False, include_input=False)
    return first_of([_line(details, root, prefix) for details in problems], SHOWN, "and {:,} more problems")


def requirement(error: BaseException | None) -> str:
    """The rule that the first invalid value breaks; "" if the error is another one."""
    return _allowed(error.errors()[0]) if isinstance(error, ValidationError) else ""


def dotted(path: KeyPath) -> str:
    """`("models", "fallbacks", 0)` as `models.fallbacks[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def known_keys(root: type[BaseModel], path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every key of `root`, sections before their keys."""
    for name, field in root.model_fields.items():
        yield (*path, name)
        for section in _models(field.annotation):
            yield from known_keys(section, (*path, name))


def nearest(name: str, known: Sequence[str], within: KeyPath = ()) -> str:
    """`did you mean …?` if a known name is close, otherwise all known paths."""
    if close := get_close_matches(name, known, n=1):
        return f"did you mean {dotted((*within, *close))}?"
    return f"known: {', '.join(dotted((*within, key)) for key in sorted(known))}"


def _line(details: ErrorDetails, root: type[BaseModel], prefix: KeyPath) -> str:
    path = (*prefix, *details["loc"])
    if details["type"] == "extra_forbidden":
        return f"{dotted(path)}: unknown key; {_suggestion(details['loc'], root, prefix)}"
    return f"{dotted(path)}: {_allowed(details)}"


def _allowed(details: ErrorDetails) -> str:
    kind, _, what = details["type"].partition("_")
    template = _ALLOWED.get(details["type"]) or (_KINDS.get(kind) if what in _WRONG_KIND else None)
    return details["msg"] if template is None else template.format(**details.get("ctx", {}))


def _suggestion(path: KeyPath, root: type[BaseModel], prefix: KeyPath) -> str:
    *parent, name = path
    beside = _fields_at(root, parent)
    elsewhere = [key for key in known_keys(root) if key[-1] == name]
    if elsewhere and not get_close_matches(str(name), beside, n=1):
        return f"did you mean {dotted((*prefix, *elsewhere[0]))}?"
    return nearest(str(name), beside, (*prefix, *parent))


def _fields_at(root: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    kind: object = root
    for part in path:
        kind = _inner(kind, str(part))
    return [name for model in _models(kind) for name in model.model_fields]


def _inner(kind: object, part: str) -> object:
    """The type at `part`; for a mapping with free names, or a list, the type of its items."""
    for model in _models(kind):
        return model.model_fields[part].annotation
    return get_args(kind)[-1]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _models(part)
