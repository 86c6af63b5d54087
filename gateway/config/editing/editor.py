"""Edits config.json for the owner: the form, the review of a change, the write with its effect, and the revert."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes

from pydantic import BaseModel, JsonValue, ValidationError

from gateway.beside import at_most
from gateway.config.channels import channel_names
from gateway.config.data.files import read_regular, replace_regular
from gateway.config.editing import config_file
from gateway.config.editing.config_file import as_text
from gateway.config.editing.form import Field, fields, filled
from gateway.config.editing.hidden import TypedSecret, masked, unmasked
from gateway.config.environment import Environment
from gateway.config.load import SECRET, parse_json, read, variable_of
from gateway.config.model import Config
from gateway.config.problems import dotted
from gateway.config.watch import ConfigWatch
from gateway.domain.conversation.diff import difference, legible
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.errors import ConfigError
from gateway.domain.json import KeyPath, map_texts, value_at
from gateway.domain.text.texts import storable


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change from the text `before` to `text`; `difference` and `shown` hide secrets.

    `sections` are the changed ones, each with whether it needs a restart; `delicate` are the changed keys that need an
    extra confirmation, each with what it decides.
    """

    before: str | None = field(repr=False)
    text: str = field(repr=False)
    shown: str
    difference: str
    sections: Mapping[str, bool]
    delicate: Mapping[str, str]
    typed: tuple[TypedSecret, ...] = ()
    """Secrets that must be stored before `text`, which refers to them, is written."""


def compare(
    before: str | None, old: dict[str, JsonValue], new: dict[str, JsonValue], text: str | None = None
) -> ConfigChange:
    """The change from one document to another; `text` is the exact text to write, None to format it."""
    keys = _changed_paths(old, new)
    shown = as_text(masked(new))
    sections: dict[str, bool] = {}
    for key in keys:
        sections[str(key[0])] = sections.get(str(key[0]), False) or _needs_restart(key)
    delicate = {dotted(key): decided for key in keys if (decided := _decides(key, new))}
    shown_difference = _shown_difference(as_text(masked(old)), shown) if keys else ""
    return ConfigChange(before, as_text(new) if text is None else text, shown, shown_difference, sections, delicate)


def check_environment(old: dict[str, JsonValue], new: dict[str, JsonValue], environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a changed key is set by the environment, so that its change would have no effect."""
    for key in map(dotted, _changed_paths(old, new)):
        if variable := variable_of(key, environ):
            raise ConfigError(f"{key}: set by {variable} in the environment, which overrides config.json; change that")


def _changed_paths(old: JsonValue, new: JsonValue) -> list[KeyPath]:
    """The paths of the values that differ."""
    before, after = dict(_leaf_values(old)), dict(_leaf_values(new))
    paths = [path for path in before | after if before.get(path) != after.get(path)]
    return [path for path in paths if not any(each != path and each[: len(path)] == path for each in paths)]


def _leaf_values(value: JsonValue, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield every value that isn't an object, and empty objects, as JSON, which distinguishes true from 1."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaf_values(item, (*path, name))
    else:
        yield path, json.dumps(value)


def _needs_restart(key: KeyPath) -> bool:
    return key[0] == "database" or (key[0] == "web" and key[:2] != ("web", "allowed_hosts"))


_TALKS, _SPENDS, _SENDS = "who may talk to the agent", "what it may spend", "where it connects and sends data"
_TARGETS = frozenset({"base_url", "api_base", "webhook_url", "endpoint", "searxng_url", "allow_urls", "private_allow"})


def _decides(key: KeyPath, new: Mapping[str, JsonValue]) -> str:
    """The decision behind a changed key that needs an extra confirmation; empty for others and removed addresses."""
    match key:
        case ("budgets", *_) | ("heartbeat", "day_usd") | ("heartbeat",):
            return _SPENDS
        case ("web", "allowed_hosts" | "public_url", *_) | ("channels", _, "access" | "allow" | "groups", *_):
            return _TALKS
        case ("triggers", *_) | ("channels" | "owner" | "web",):
            return _TALKS
        case ("owner", name) if name in channel_names():
            return _TALKS
        case ("hooks", *_) | ("tools", "mcp", *_) | ("backup", "to") | ("workspace" | "database", "url"):
            return _SENDS if value_at(dict(new), key) is not None else ""
        case _:
            return _SENDS if _TARGETS & set(map(str, key)) and value_at(dict(new), key) is not None else ""


def _shown_difference(before: str, after: str) -> str:
    with suppress(ToolFailed):
        return legible("\n".join(difference("config.json", before, after).split("\n")[2:]))
    return "The change is too long to show."


RELOAD_SECONDS = 10.0
"""Longer than the 5 seconds between two polls of a watch without file events."""


class _Previous(BaseModel):
    """The text that the last save replaced, and the SHA-256 of the text that it wrote."""

    text: str
    saved: str


@dataclass(frozen=True, slots=True)
class ConfigForm:
    """config.json for display; `stamp` changes with the file, `problem` says why it can't be parsed."""

    fields: Sequence[Field]
    text: str
    stamp: str
    revertible: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ConfigEditor:
    """Edits the file itself; all methods but `save` only read. Raises `ConfigError`."""

    _environment: Environment
    _environ: Mapping[str, str]
    _watch: ConfigWatch
    _key: bytes = field(default_factory=lambda: token_bytes(16), repr=False)

    def form(self) -> ConfigForm:
        """The form with all fields, and the document with hidden secrets."""
        text = read(self._path)
        revertible = self._previous(text) is not None
        try:
            raw = self._parsed(text)
        except ConfigError as error:
            return ConfigForm((), "", self.stamp(text), revertible, str(error))
        return ConfigForm(tuple(fields(raw, self._environ)), as_text(masked(raw)), self.stamp(text), revertible)

    def typed(self, stamp: str, values: Mapping[str, str]) -> ConfigChange:
        """The change by these values, by key, of the file with this stamp."""
        before, raw = self._read(stamp)
        return self._change(before, raw, filled(raw, tuple(fields(raw, self._environ)), values))

    def written(self, stamp: str, text: str) -> ConfigChange:
        """The change to this document of the file with this stamp."""
        before, raw = self._read(stamp)
        return self._change(before, raw, parse_json(text))

    def revert(self) -> ConfigChange:
        """The change back to the version before the last save."""
        before = read(self._path)
        if (previous := self._previous(before)) is None:
            raise ConfigError("there is no earlier version: config.json was changed elsewhere since the last save")
        new = self._parsed(previous)
        check_environment(self._parsed(before), new, self._environ)
        return compare(before, self._parsed(before), new, previous)

    async def save(self, wanted: ConfigChange) -> Mapping[str, str]:
        """Write a change and wait until it is applied; returns the effect on each section. Raises `Unwritable`."""
        await asyncio.to_thread(config_file.replace_text, self._path, wanted.text, wanted.before, self._watch.parse)
        await asyncio.to_thread(self._remember_previous, wanted)
        applied = False
        async with at_most(RELOAD_SECONDS):
            applied = await self._watch.handled(wanted.text)
        config, running = self._watch.parse(wanted.text), self._watch.current
        return {
            name: _effect(name, config, running, restart=restart, applied=applied)
            for name, restart in wanted.sections.items()
        }

    def stamp_of(self, wanted: ConfigChange) -> str:
        """An identifier of a change, for a page."""
        return self.stamp("\0".join([wanted.text, *(each.value for each in wanted.typed)]))

    def stamp(self, text: str | None) -> str:
        """An identifier of a version of the file, for a page; it doesn't reveal the content."""
        return hashlib.blake2b((text or "").encode(), key=self._key, digest_size=16).hexdigest()

    @property
    def _path(self) -> Path:
        return self._environment.config

    @property
    def _record(self) -> Path:
        return self._environment.data / "config.previous"

    def _read(self, stamp: str) -> tuple[str | None, dict[str, JsonValue]]:
        before = read(self._path)
        if self.stamp(before) != stamp:
            raise ConfigError("config.json was changed meanwhile; reload the page and try again")
        return before, self._parsed(before)

    def _parsed(self, text: str | None) -> dict[str, JsonValue]:
        return parse_json("{}" if text is None else text, self._path.name)

    def _change(self, before: str | None, raw: dict[str, JsonValue], draft: JsonValue) -> ConfigChange:
        new, typed = unmasked(draft, raw, self._environment.env_file)
        assert isinstance(new, dict)
        check_environment(raw, new, self._environ)
        wanted = replace(compare(before, raw, new), typed=typed)
        if storable(wanted.text) != wanted.text:
            raise ConfigError("config.json: has characters that cannot be stored")
        values = {f"{SECRET}{each.name}": each.value for each in typed}
        meant = config_file.as_text(map_texts(new, lambda _, text: values.get(text, text)))
        self._watch.parse(meant if typed else wanted.text)
        return wanted

    def _previous(self, now: str | None) -> str | None:
        with suppress(OSError, ValidationError):
            record = _Previous.model_validate_json(read_regular(self._record, 4 * 1024 * 1024))
            if record.saved == _sha256(now or ""):
                return record.text
        return None

    def _remember_previous(self, saved: ConfigChange) -> None:
        record = _Previous(text="{}\n" if saved.before is None else saved.before, saved=_sha256(saved.text))
        replace_regular(self._record, record.model_dump_json().encode())


def _effect(name: str, config: Config, running: Config, *, restart: bool, applied: bool) -> str:
    if getattr(config, name, None) == getattr(running, name, None):
        return "applied" if applied else "not applied; see the log"
    return "needs a restart" if restart else "not applied yet; see the log"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
