"""Keys of config.json that the environment sets: `SUPACLAW__A__B=…`, and the short names that people expect."""

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from gateway.config.channels import channel_names, settings_model

Variables = Mapping[tuple[str, ...], str]
"""The variable that sets a key, by the key's path."""

FULL_NAME = "SUPACLAW__"
SHORT_NAMES: Mapping[str, tuple[str, ...]] = {
    "BRAVE_API_KEY": ("tools", "web", "search", "brave_api_key"),
    "EXA_API_KEY": ("tools", "web", "search", "exa_api_key"),
    "SEARXNG_URL": ("tools", "web", "search", "searxng_url"),
    "TAVILY_API_KEY": ("tools", "web", "search", "tavily_api_key"),
    "SUPACLAW_DATABASE_URL": ("database", "url"),
    "SUPACLAW_HOST": ("web", "host"),
    "SUPACLAW_MODEL": ("models", "primary"),
    "SUPACLAW_OWNER_NAME": ("owner", "name"),
    "SUPACLAW_PORT": ("web", "port"),
    "SUPACLAW_PUBLIC_URL": ("web", "public_url"),
    "SUPACLAW_TIMEZONE": ("owner", "timezone"),
}


def variables(environ: Mapping[str, str]) -> Variables:
    """The variables that set a key; a full name beats a short one, an empty variable counts as unset."""
    short = dict(_short_names(environ))
    full = {name: tuple(name.removeprefix(FULL_NAME).lower().split("__")) for name in environ if _is_full(name)}
    return {path: name for name, path in (short | full).items() if environ.get(name)}


def overruled(raw: Mapping[str, JsonValue], environ: Mapping[str, str]) -> dict[str, JsonValue]:
    """`raw` with what the environment sets; leaves a section that is not an object for validation to refuse."""
    merged = dict(raw)
    for path, name in variables(environ).items():
        _put(merged, path, _value(environ[name]))
    return merged


def variable_of(key: str, environ: Mapping[str, str]) -> str | None:
    """The variable that sets the dotted key, or one of its parts; None if the file or the default does."""
    path = tuple(key.split("."))
    return next((name for each, name in variables(environ).items() if each[: len(path)] == path[: len(each)]), None)


def usual_name(path: tuple[int | str, ...]) -> str:
    """The variable that people would set the key at `path` by: a short name if it has one."""
    keys = tuple(str(part) for part in path)
    named = settings_model(keys[1]).VARIABLES if keys[0] == "channels" and keys[1] in channel_names() else {}
    short = {**SHORT_NAMES, **{name: (*keys[:2], field) for name, field in named.items()}}
    return next((name for name, at in short.items() if at == keys), FULL_NAME + "__".join(keys).upper())


def _short_names(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A channel's own names need its module, which is imported only if a variable begins like the channel."""
    yield from SHORT_NAMES.items()
    for channel in channel_names():
        prefix = channel.upper()
        yield f"SUPACLAW_OWNER_{prefix}", ("owner", channel)
        if any(name.startswith(f"{prefix}_") for name in environ):
            names = settings_model(channel).VARIABLES
            yield from ((name, ("channels", channel, field)) for name, field in names.items())


def _is_full(name: str) -> bool:
    return name.startswith(FULL_NAME) and all(name.removeprefix(FULL_NAME).split("__"))


def _put(section: dict[str, JsonValue], path: tuple[str, ...], value: JsonValue) -> None:
    name, *rest = path
    inner = section.get(name, {})
    if not rest:
        section[name] = value
    elif isinstance(inner, dict):
        section[name] = copied = dict(inner)
        _put(copied, tuple(rest), value)


def _value(text: str) -> JsonValue:
    """Lists, objects, `true`, `false` and `null` are JSON; all else is text, which a number's key takes as a number."""
    if text not in ("true", "false", "null") and not text.startswith(("[", "{")):
        return text
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
