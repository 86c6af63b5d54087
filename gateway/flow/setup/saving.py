"""Saves keys in files of their own, and in config.json where they are: `$env:NAME`, never a key."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import JsonValue

from gateway.config.channels import check_channels
from gateway.config.data.keys import save_keys
from gateway.config.editing import config_file
from gateway.config.environment import Environment
from gateway.config.load import Lookup, parse, parse_json, read, secrets_unavailable, variable_of
from gateway.config.model import Config
from gateway.domain.clock import Clock
from gateway.domain.errors import ConfigError, OwnerMustAct

Section = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Connected:
    """What was connected; `paste` is what the file has to say, where it cannot be written to from here.

    A code behind `link` makes it an address that hands over the code to our account there.
    """

    who: str
    paste: str = ""
    file: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """Where things are saved, and what applies now. `hide` keeps a key out of the logs."""

    environment: Environment
    environ: Mapping[str, str] = field(repr=False)
    clock: Clock
    config: Callable[[], Config]
    hide: Callable[[str], None] = lambda _key: None
    secrets: Lookup = secrets_unavailable

    def check_unset(self, keys: Mapping[str, str], paths: Iterable[str]) -> None:
        """Raise `OwnerMustAct` if the environment has other values than those to be saved: they would beat them."""
        taken = [name for name, value in keys.items() if self.environ.get(name) not in (None, "", value)]
        taken += filter(None, (variable_of(path, self.environ) for path in paths))
        if taken:
            raise OwnerMustAct(f"{taken[0]} is set in the environment, which overrides saved values; change it there")

    def save(
        self, who: str, path: str, change: Section, name: str = "", keys: Mapping[str, str] | None = None
    ) -> Connected:
        """Save the keys in the file `name`, then merge `change` into the section at the dotted `path`."""
        if keys:
            save_keys(self.environment.data, name, keys)
        file = self.environment.config
        merged = _over(self.written(path), change)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
        try:
            config_file.set_key(file, path, merged, self._check)
        except ConfigError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            return Connected(who, _as_text(path, merged), str(file))
        return Connected(who)

    def written(self, path: str) -> Section:
        """The section at the dotted path as config.json has it, with its references."""
        found: JsonValue = parse_json(read(self.environment.config) or "{}", self.environment.config.name)
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def _check(self, text: str) -> None:
        check_channels(parse(text, self.environ, self.secrets, source=self.environment.config.name))


def _over(written: JsonValue, change: Section) -> Section:
    old: Section = written if isinstance(written, dict) else {}
    return old | {key: _over(old.get(key), item) if isinstance(item, dict) else item for key, item in change.items()}


def _as_text(path: str, section: Section) -> str:
    whole: JsonValue = section
    for part in reversed(path.split(".")):
        whole = {part: whole}
    return json.dumps(whole, indent=2, ensure_ascii=False)
