"""What is changed in openclaw.json, and how it is undone: pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyjson5
from pydantic import JsonValue, TypeAdapter

PLUGIN: Final = "memory-supaclaw"
HOOKS: Final = ("supaclaw-logger", "supaclaw-bootstrap")
META: Final = "meta"
"""What OpenClaw notes about its own writes."""

Settings = dict[str, JsonValue]
_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)


def parsed(text: str) -> Settings:
    """The object in a text of JSON5; raises `ValueError`, which quotes nothing of it."""
    try:
        found = pyjson5.decode(text)
    except pyjson5.Json5DecoderException as error:
        raise ValueError(error.message) from None  # the exception holds what was read, and that holds keys
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - of the file
    return _SETTINGS.validate_python(found)


@dataclass(frozen=True, slots=True)
class Edit:
    """A value to be at a path, or with `member` to be in the list there, if there is one."""

    path: tuple[str, ...]
    value: JsonValue
    member: bool = False

    def apply(self, settings: Settings) -> None:
        """Raises `ValueError` where something other than an object or a list is in the way."""
        *parents, last = self.path
        place = settings
        for depth, name in enumerate(parents, start=1):
            below = place.get(name)
            if below is None:
                if self.member:
                    return
                below = place[name] = {}
            if not isinstance(below, dict):
                raise ValueError(f"{'.'.join(self.path[:depth])} is not an object")  # noqa: TRY004 - of the file
            place = below
        if not self.member:
            place[last] = self.value
        elif isinstance(entries := place.get(last), list) and self.value not in entries:
            entries.append(self.value)

    def undo(self, settings: Settings, before: Settings) -> None:
        """Restore what was there before, unless somebody has changed it since; objects made for it go, too."""
        parents = _chain(settings, self.path[:-1])
        if parents is None or self.path[-1] not in parents[-1]:
            return
        place, last, earlier = parents[-1], self.path[-1], _at(before, self.path)
        entries = place[last]
        if self.member:
            if isinstance(entries, list) and not (isinstance(earlier, list) and self.value in earlier):
                place[last] = [each for each in entries if each != self.value]
            return
        if entries != self.value:
            return
        if earlier is None:
            del place[last]
        else:
            place[last] = earlier
        for depth in range(len(parents) - 1, 0, -1):
            if parents[depth] or _at(before, self.path[:depth]) is not None:
                return
            del parents[depth - 1][self.path[depth - 1]]


def edited(settings: Settings, edits: Sequence[Edit]) -> Settings:
    """A copy with all edits."""
    copy = _copy(settings)
    for edit in edits:
        edit.apply(copy)
    return copy


def undone(settings: Settings, before: Settings, edits: Sequence[Edit]) -> Settings:
    """A copy without them."""
    copy = _copy(settings)
    for edit in reversed(edits):
        edit.undo(copy, before)
    return copy


def same(one: Settings, other: Settings) -> bool:
    """Whether they differ in nothing but OpenClaw's own notes."""
    return {**one, META: None} == {**other, META: None}


def rendered(settings: Settings) -> bytes:
    """As OpenClaw writes it."""
    return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()


def plugin_edits(layout: str) -> list[Edit]:
    """Our plugin in the memory slot, in the layout of "new" or "old" versions."""
    entry = ("plugins", "entries", PLUGIN)
    search = ("memory", "search", "enabled") if layout == "new" else ("agents", "defaults", "memorySearch", "enabled")
    return [
        Edit((*entry, "enabled"), True),
        Edit((*entry, "hooks", "allowConversationAccess"), True),
        Edit(("plugins", "slots", "memory"), PLUGIN),
        Edit(("plugins", "allow"), PLUGIN, member=True),
        Edit(search, False),
    ]


def flush_edits(layout: str) -> list[Edit]:
    """Keep what matters before a compaction: the plugin brings the prompt; old versions take it from the settings."""
    flush = ("agents", "defaults", "compaction", "memoryFlush")
    edits = [Edit((*flush, "enabled"), True)]
    if layout == "old":
        system = "The conversation is about to be compacted. Keep in memory what would be lost."
        prompt = "Use memory_remember to keep lasting notes, one sentence each. Reply NO_REPLY."
        edits += [Edit((*flush, "systemPrompt"), system), Edit((*flush, "prompt"), prompt)]
    return edits


def hook_edits(eligible: Sequence[str]) -> list[Edit]:
    """Our hooks instead of the plugin's; `eligible` are those that a list of names would switch off."""
    entries = ("hooks", "internal", "entries")
    plugin = ("plugins", "entries", PLUGIN, "config")
    return [
        Edit(("hooks", "internal", "enabled"), True),
        *(Edit((*entries, name, "enabled"), True) for name in (*eligible, *HOOKS)),
        Edit((*plugin, "log"), False),
        Edit((*plugin, "bootstrap"), False),
    ]


def all_edits(eligible: Sequence[str], *, hooks: bool) -> list[Edit]:
    """Everything that an installation may have changed."""
    edits = [*plugin_edits("new"), *plugin_edits("old"), *flush_edits("old")]
    return [*edits, *(hook_edits(eligible) if hooks else [])]


def discovers_hooks(settings: Settings) -> bool:
    """Whether hooks are on without a list of names."""
    internal = _at(settings, ("hooks", "internal"))
    return isinstance(internal, dict) and internal.get("enabled") is True and not internal.get("entries")


def _copy(settings: Settings) -> Settings:
    return _SETTINGS.validate_json(json.dumps(settings))


def _chain(settings: Settings, path: Sequence[str]) -> list[Settings] | None:
    """The objects on the way, the outermost first; None where one is missing."""
    chain = [settings]
    for name in path:
        below = chain[-1].get(name)
        if not isinstance(below, dict):
            return None
        chain.append(below)
    return chain


def _at(settings: Mapping[str, JsonValue], path: Sequence[str]) -> JsonValue:
    place: JsonValue = dict(settings)
    for name in path:
        place = place.get(name) if isinstance(place, dict) else None
    return place
