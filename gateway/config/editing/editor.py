"""Changes config.json for its owner: the form, the review, the write, what came of it, and the way back."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes

from pydantic import BaseModel, JsonValue, ValidationError

from gateway.config import edit
from gateway.config.data.files import read_regular, replace_regular
from gateway.config.editing.change import Change, change, check_environment
from gateway.config.editing.form import Field, fields, filled
from gateway.config.editing.hidden import each_text, masked, unmasked
from gateway.config.environment import Environment
from gateway.config.load import parse_json, read
from gateway.config.model import Config
from gateway.config.references import SECRET
from gateway.config.watch import ConfigWatch
from gateway.domain.errors import ConfigError
from gateway.domain.text.texts import storable

RELOAD_SECONDS = 10.0
"""A watch without file events looks every 5 seconds."""


class _Previous(BaseModel):
    """What the last save replaced, and the SHA-256 of what it wrote."""

    text: str
    saved: str


@dataclass(frozen=True, slots=True)
class Form:
    """config.json for display; `stamp` changes with the file, `problem` says why it cannot be read."""

    fields: Sequence[Field]
    text: str
    stamp: str
    revertible: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ConfigEditor:
    """Works on the file itself, however it got there; everything but `save` only reads. Raises `ConfigError`."""

    _environment: Environment
    _environ: Mapping[str, str]
    _watch: ConfigWatch
    _key: bytes = field(default_factory=lambda: token_bytes(16), repr=False)

    def form(self) -> Form:
        """All fields, and the document with its secrets hidden."""
        text = read(self._path)
        revertible = self._previous(text) is not None
        try:
            raw = self._parsed(text)
        except ConfigError as error:
            return Form((), "", self.stamp(text), revertible, str(error))
        form = tuple(fields(raw, self._environ))
        return Form(form, edit.as_text(masked(raw)), self.stamp(text), revertible)

    def typed(self, stamp: str, values: Mapping[str, str]) -> Change:
        """What these fields, by key, would change in the file with this stamp."""
        before, raw = self._read(stamp)
        return self._change(before, raw, filled(raw, tuple(fields(raw, self._environ)), values))

    def written(self, stamp: str, text: str) -> Change:
        """What this document would change."""
        before, raw = self._read(stamp)
        return self._change(before, raw, parse_json(text))

    def revert(self) -> Change:
        """What going back to the version before the last save would change."""
        before = read(self._path)
        previous = self._previous(before)
        if previous is None:
            raise ConfigError(
                "there is no version to go back to: config.json was changed elsewhere since the last save"
            )
        new = self._parsed(previous)
        check_environment(self._parsed(before), new, self._environ)
        return change(before, self._parsed(before), new, previous)

    async def save(self, wanted: Change) -> Mapping[str, str]:
        """Write it and wait until it is applied; says what came of each section. Raises `Unwritable`."""
        await asyncio.to_thread(edit.replace, self._path, wanted.text, wanted.before, self._watch.parse)
        await asyncio.to_thread(self._keep, wanted)
        applied = False
        with suppress(TimeoutError):
            async with asyncio.timeout(RELOAD_SECONDS):
                applied = await self._watch.handled(wanted.text)
        config, running = self._watch.parse(wanted.text), self._watch.current
        return {
            name: _effect(name, config, running, restart=restart, applied=applied)
            for name, restart in wanted.sections.items()
        }

    def stamp_of(self, wanted: Change) -> str:
        """Names a change to a page."""
        return self.stamp("\0".join([wanted.text, *(each.value for each in wanted.typed)]))

    def stamp(self, text: str | None) -> str:
        """Names a version of the file to a page; it tells nothing of what is in it."""
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

    def _change(self, before: str | None, raw: dict[str, JsonValue], draft: JsonValue) -> Change:
        new, typed = unmasked(draft, raw, self._environment.env_file)
        assert isinstance(new, dict)
        check_environment(raw, new, self._environ)
        wanted = replace(change(before, raw, new), typed=typed)
        if storable(wanted.text) != wanted.text:
            raise ConfigError("config.json: holds characters that cannot be stored")
        values = {f"{SECRET}{each.name}": each.value for each in typed}
        meant = edit.as_text(each_text(new, lambda _, text: values.get(text, text)))
        self._watch.parse(meant if typed else wanted.text)
        return wanted

    def _previous(self, now: str | None) -> str | None:
        with suppress(OSError, ValidationError):
            record = _Previous.model_validate_json(read_regular(self._record, 4 * 1024 * 1024))
            if record.saved == _sha256(now or ""):
                return record.text
        return None

    def _keep(self, saved: Change) -> None:
        record = _Previous(text="{}\n" if saved.before is None else saved.before, saved=_sha256(saved.text))
        replace_regular(self._record, record.model_dump_json().encode())


def _effect(name: str, config: Config, running: Config, *, restart: bool, applied: bool) -> str:
    if getattr(config, name, None) == getattr(running, name, None):
        return "applied" if applied else "not applied; see the log"
    return "needs a restart" if restart else "not applied yet; see the log"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
