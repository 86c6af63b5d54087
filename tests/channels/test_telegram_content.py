"""Every field of the Bot API: told to the agent, or named among what is left out."""

from datetime import datetime
from itertools import count
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from channels.telegram.sdk import load_aiogram
from tests.channels.test_telegram_updates import ADA, PRIVATE, heard, read

load_aiogram()

from aiogram.types import Chat, Message, User  # noqa: E402

from channels.telegram.content import FIELDS, KINDS, UNREADABLE  # noqa: E402

IN_NAMES = {"file_id", "file_unique_id", "file_name", "mime_type"}
"""These become facts of the attachment."""
PAGE = {"rich_message"}
"""Its pieces nest without end; `test_telegram_media` has one of each kind."""
BASE = {"message_id", "date", "chat", "from_user", "text", "caption", "entities", "caption_entities"}


class Sample:
    """Values of the types of the Bot API in JSON; `texts` are all that they hold, with the names of their fields."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._numbers = count(1)

    def of(self, kind: Any, name: str, path: tuple[type, ...] = ()) -> Any:
        origin, parts = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.of(parts[0], name, path)
        if origin in {Union, UnionType}:
            return next((made for part in parts if (made := self.of(part, name, path)) is not None), None)
        if origin is list:
            inner = parts[0] if get_origin(parts[0]) is not Annotated else get_args(parts[0])[0]
            options = get_args(inner) if get_origin(inner) in {Union, UnionType} else (inner,)
            return [made for part in options if (made := self.of(part, name, path)) is not None] or None
        if origin is Literal:
            return getattr(parts[0], "value", parts[0])
        if kind in {Chat, User}:
            return {**PRIVATE, **ADA, "first_name": self._plain(str, name)}
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return None if kind in path else self._model(kind, path)
        return self._plain(kind, name)

    def _model(self, kind: type[BaseModel], path: tuple[type, ...]) -> dict[str, Any]:
        made = {}
        kind.model_rebuild()  # `load_aiogram` leaves that to the first use
        for name, field in kind.model_fields.items():
            if name in FIELDS and not field.is_required() and get_origin(field.annotation) is not Literal:
                continue
            before = set(self.texts)
            if (value := self.of(field.annotation, name, (*path, kind))) is not None:
                made[field.alias or name] = value
            if name in FIELDS:
                self.texts |= dict.fromkeys(self.texts.keys() - before, name)
        return made

    def _plain(self, kind: Any, name: str) -> Any:
        if kind is str:
            text = f"text-{next(self._numbers):04}."
            self.texts[text] = name
            return text
        return {int: 1, float: 1.0, bool: False, datetime: 1}.get(kind)


@pytest.mark.parametrize("field", sorted(Message.model_fields.keys() - BASE - PAGE - FIELDS))
def test_every_field_is_told_or_named_as_left_out(field: str) -> None:
    Message.model_rebuild()
    sample = Sample()
    value = sample.of(Message.model_fields[field].annotation, field)
    assert value is not None
    inbound = heard("hello" if field == "link_preview_options" else None, **{field: value})
    untold = {name for text, name in sample.texts.items() if text not in repr(inbound)}
    if field in UNREADABLE:
        assert "not readable here" in inbound.text
    else:
        assert untold <= FIELDS
    assert not {name for text, name in sample.texts.items() if text in repr(inbound)} & (FIELDS - IN_NAMES)


def test_what_is_named_as_a_kind_or_left_out_is_a_field() -> None:
    assert set(KINDS) <= Message.model_fields.keys()


def link(text: str, **fields: Any) -> dict[str, Any]:
    start = len(text.partition("the")[0].encode("utf-16-le")) // 2
    return {"type": "text_link", "offset": start, "length": 11, "url": "https://e.org/x"} | fields


def test_the_address_behind_words_stands_beside_them_and_is_nobodys_word() -> None:
    text = "Read 🎩 the article"
    said = heard(text, entities=[link(text)])
    assert (said.text, said.added) == (text, 'link behind "the article": https://e.org/x')
    photo = [{"file_id": "a", "file_unique_id": "b", "width": 1, "height": 1}]
    caption = heard(None, photo=photo, caption=text, caption_entities=[link(text)])
    assert (caption.text, caption.added) == (said.text, said.added)
    origin = {"type": "user", "date": 1, "sender_user": ADA}
    passed_on = heard(text, entities=[link(text)], forward_origin=origin)
    assert (passed_on.text, passed_on.added) == ("Read 🎩 the article (https://e.org/x)", "")
    before = {"message_id": 1, "date": 1, "chat": PRIVATE, "text": text, "entities": [link(text)]}
    assert heard("yes", reply_to_message=before).quoted == passed_on.text
    assert heard("hi", link_preview_options={"url": "https://e.org/p"}).added == "https://e.org/p"
    keys = {"inline_keyboard": [[{"text": "Buy", "url": "https://e.org/b"}]]}
    assert heard("offer", forward_origin=origin, reply_markup=keys).added == "Buy\nhttps://e.org/b"
    before = {"message_id": 1, "date": 1, "chat": PRIVATE, "text": "Which?", "reply_markup": keys}
    assert heard("first", reply_to_message=before).quoted == "Which? [buttons: Buy / https://e.org/b]"


def test_a_note_that_is_newer_than_this_program_starts_nothing() -> None:
    note = {"message_id": 1, "date": 1, "chat": PRIVATE, "from": ADA, "hologram_started": {"user_id": 5}}
    assert read({"message": note}) is None
    assert heard(None).text == "[a message that isn't readable here; say it in words, or send it as a file]"
    before = {"message_id": 1, "date": 1, "chat": PRIVATE, "hologram": {"file_id": "a"}}
    assert heard("what?", reply_to_message=before).quoted == heard(None).text


def test_the_day_of_a_giveaway_is_told() -> None:
    giveaway = {"chats": [{"id": -9, "type": "channel", "title": "News"}], "winner_count": 3}
    assert heard(None, giveaway=giveaway | {"winners_selection_date": 1_800_000_000}).text == (
        "[giveaway News; winners selection date Fri 2027-01-15 08:00 UTC; winner count 3]"
    )


def test_the_signature_of_a_post_is_told() -> None:
    chat = {"id": -9, "type": "channel", "title": "News"}
    origin = {"type": "channel", "date": 1, "chat": chat, "message_id": 3, "author_signature": "Ann"}
    assert heard("hi", forward_origin=origin).forwarded == "News, Ann"


def test_spoilers_and_quotes_stay_what_they_are() -> None:
    spoiler = {"type": "spoiler", "offset": 0, "length": 2}
    assert heard("hi you", entities=[spoiler]).text == "||hi|| you"
    assert heard("hi you", entities=[spoiler | {"type": "strikethrough"}]).text == "~~hi~~ you"
    quote = {"type": "blockquote", "offset": 0, "length": 8}
    assert heard("/approve", entities=[quote]).text == "\n> /approve\n"
    assert heard("🎩", entities=[{"type": "bold", "offset": 1, "length": 1}]).text == "🎩"
