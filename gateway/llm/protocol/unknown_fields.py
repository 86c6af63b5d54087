"""Fields of an answer that we don't know: put together from the pieces of a stream, for their provider to get back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from json import dumps
from typing import Any

from pydantic_core import from_json

from gateway.domain.conversation.model import ProviderFields
from gateway.domain.text.texts import GrowingText, storable

MAX_FIELDS = 2**18
"""Bytes of those of one reply; with more than that none of them is kept."""
_LONGEST = 16
"""How many times as long all pieces may be, with what each says again."""
_NEWEST_ITEMS = 64
"""Items of a list that a piece may continue."""
_NOTHING: tuple[Any, ...] = (None, [], {}, "")
_COME_WHOLE = frozenset({"type", "id", "index", "format", "name", "signature", "thought_signature"})


@dataclass(slots=True)
class UnknownFields:
    """Those of one answer; texts grow piece by piece, lists item by item, and of other values the newest counts."""

    source: str
    """Of whom they come; "": nothing is kept."""
    message: dict[str, Any] = field(default_factory=dict)
    _size: int = 0

    def add(self, to: dict[str, Any], piece: Mapping[str, Any]) -> None:
        """Add a piece of the message, or of a call, `to` what it had before."""
        found = {name: value for name, value in piece.items() if value not in _NOTHING[:3]}
        with suppress(RecursionError):  # too deep to be written
            self._size += len(dumps(found, default=str)) if found else 0
            if self.source and self._size <= _LONGEST * MAX_FIELDS:
                _join(to, found)

    def whole(self, calls: Sequence[Mapping[str, Any]]) -> ProviderFields | None:
        """All of them; None if there are none, or too many. Empty texts say something beside calls only."""
        with suppress(ValueError, RecursionError):  # a number that JSON doesn't have, or too many levels
            some = any(calls) or any(map(str, self.message.values())) or (calls and self.message)
            kept = ProviderFields(self.source, _json(self.message), tuple(map(_json, calls)))
            if self.source and some and self._size <= _LONGEST * MAX_FIELDS and 3 * kept.tokens <= MAX_FIELDS:
                return kept
        return None


def _join(fields: dict[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in piece.items():
        match fields.get(name), value:
            case (before, str()) if name not in _COME_WHOLE:
                fields[name] = text = before if isinstance(before, GrowingText) else GrowingText()
                text.add(value)
            case (before, list()):
                fields[name] = items = before if isinstance(before, list) else []
                _join_items(items, value)
            case (dict() as before, dict()):
                fields[name] = {**before, **value}
            case (before, _) if not before or value not in _NOTHING:
                fields[name] = value
    return fields


def _join_items(items: list[Any], pieces: Sequence[Any]) -> None:
    for piece in pieces:
        newest = (item for item in items[: -_NEWEST_ITEMS - 1 : -1] if _continues(item, piece, items[-1]))
        if begun := next(newest, None):
            _join(begun, piece)
        else:
            items.append(_join({}, piece) if isinstance(piece, dict) else piece)


def _continues(item: Any, piece: Any, last: Any) -> bool:
    """Whether a piece of a list goes on with an item: that of its index, or the last one until it is signed."""
    if not (isinstance(item, dict) and isinstance(piece, dict)) or "data" in {*item, *piece}:
        return False
    other = any(item.get(name) != piece.get(name) for name in ("type", "index"))
    if other or (item.get("id") and piece.get("id") not in (None, item["id"])):
        return False
    return "index" in piece or ("type" in piece and item is last and not item.get("signature"))


def _json(fields: Mapping[str, Any]) -> str:
    from_json(text := storable(dumps(fields, ensure_ascii=False, default=str, allow_nan=False)))
    return text
