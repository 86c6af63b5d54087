from typing import Any

import pytest

from gateway.domain.conversation.inbound import Attachment
from tests.channels.test_telegram_updates import ADA, GROUP, ME, PHOTO, heard, message

FILE = {"file_id": "a", "file_unique_id": "b", "file_size": 5}
FRAME = FILE | {"width": 1, "height": 1, "duration": 1}
STICKER = FILE | {"type": "regular", "width": 1, "height": 1, "is_animated": False, "is_video": False, "emoji": "🙂"}
POLL = {
    "id": "1",
    "question": "Tea?",
    "total_voter_count": 0,
    "is_closed": False,
    "is_anonymous": True,
    "type": "regular",
    "allows_multiple_answers": False,
    "allows_revoting": False,
    "members_only": False,
    "options": [{"text": each, "voter_count": 0, "persistent_id": each} for each in ("yes", "no")],
}
PAGE = {
    "blocks": [
        {"type": "heading", "text": "Prices", "size": 1},
        {
            "type": "paragraph",
            "text": [
                "from ",
                {"type": "bold", "text": "today"},
                {"type": "custom_emoji", "custom_emoji_id": "1", "alternative_text": "🙂"},
            ],
        },
        {
            "type": "table",
            "cells": [
                [{"text": "tea", "align": "left", "valign": "top"}, {"text": "3", "align": "left", "valign": "top"}]
            ],
        },
        {"type": "list", "items": [{"label": "•", "blocks": [{"type": "paragraph", "text": "one"}]}]},
        {"type": "mathematical_expression", "expression": "x^2"},
        {"type": "details", "summary": "more", "blocks": [{"type": "paragraph", "text": "inside"}]},
        {"type": "divider"},
    ]
}


@pytest.mark.parametrize(
    ("fields", "attachment"),
    [
        ({"photo": PHOTO}, Attachment("a", "photo-b.jpg", "image/jpeg")),
        ({"document": FILE}, Attachment("a", "document-b", "", 5)),
        (
            {"document": FILE | {"file_name": "../x.pdf", "mime_type": "application/pdf"}},
            Attachment("a", "../x.pdf", "application/pdf", 5),
        ),
        ({"voice": FILE | {"duration": 1}}, Attachment("a", "voice-b.ogg", "audio/ogg", 5)),
        ({"audio": FILE | {"duration": 1, "mime_type": "audio/mp4"}}, Attachment("a", "audio-b.mp3", "audio/mp4", 5)),
        ({"video": FRAME | {"file_name": "cat.mov"}}, Attachment("a", "cat.mov", "video/mp4", 5)),
        ({"video_note": FILE | {"length": 1, "duration": 1}}, Attachment("a", "video-note-b.mp4", "video/mp4", 5)),
        ({"animation": FRAME, "document": FILE}, Attachment("a", "animation-b.mp4", "video/mp4", 5)),
        ({"live_photo": FRAME, "photo": PHOTO}, Attachment("a", "photo-b.jpg", "image/jpeg")),
    ],
)
def test_a_file_is_attached_and_its_caption_is_the_text(fields: dict[str, Any], attachment: Attachment) -> None:
    inbound = heard(None, **fields, caption="look")
    assert (inbound.attachments, inbound.text) == ((attachment,), "look")
    assert heard(None, **fields).text == ""


def test_a_sticker_is_named_and_attached_unless_it_moves() -> None:
    still = heard(None, sticker=STICKER)
    assert (still.text, still.attachments) == ("[sticker 🙂]", (Attachment("a", "sticker-b.webp", "image/webp", 5),))
    assert heard(None, sticker=STICKER | {"is_animated": True}).attachments == ()
    assert heard(None, sticker=STICKER | {"is_video": True}).attachments == ()


def test_of_a_photo_the_largest_size_is_taken() -> None:
    sizes = [PHOTO[0] | {"file_id": str(width), "width": width} for width in (90, 2560, 1280)]
    (photo,) = heard(None, photo=sizes).attachments
    assert photo.ref == "2560"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"location": {"latitude": 52.5, "longitude": 13.404954}}, "[location 52.5, 13.40495]"),
        (
            {
                "venue": {"location": {"latitude": 1, "longitude": 2}, "title": "Inn", "address": "Road 1"},
                "location": {"latitude": 1, "longitude": 2},
            },
            "[venue Inn, Road 1, 1.0, 2.0]",
        ),
        ({"contact": {"first_name": "Ada", "phone_number": "+49 1"}}, "[contact Ada, +49 1]"),
        ({"poll": POLL}, "[poll Tea? yes / no]"),
        (
            {"poll": POLL | {"options": [{"text": "yes", "voter_count": 3, "persistent_id": "y"}]}},
            "[poll Tea? yes (3)]",
        ),
        ({"location": {"latitude": 1, "longitude": 2, "live_period": 900}}, "[location 1.0, 2.0 (live)]"),
        ({"dice": {"emoji": "🎲", "value": 5}}, "[dice 🎲 5]"),
        (
            {"checklist": {"title": "Shop", "tasks": [{"id": 1, "text": "milk"}, {"id": 2, "text": "tea"}]}},
            "[checklist Shop; [ ] milk; [ ] tea]",
        ),
        ({"story": {"chat": GROUP, "id": 1}}, "[story: not readable here; send it as a file]"),
        ({"rich_message": {"blocks": [{"type": "divider"}]}}, "[rich message]"),
        (
            {
                "rich_message": {
                    "blocks": [
                        {"type": "photo", "photo": PHOTO},
                        {
                            "type": "map",
                            "location": {"latitude": 1, "longitude": 2},
                            "zoom": 1,
                            "width": 1,
                            "height": 1,
                        },
                    ]
                }
            },
            "[photo in it: not read; send it by itself]\n[map 1.00000, 2.00000]",
        ),
        (
            {"hologram": {"of": "next year", "file_id": "a"}},
            "[a message that isn't readable here; say it in words, or send it as a file]",
        ),
        ({"rich_message": PAGE}, "Prices\nfrom today🙂\ntea | 3\n• one\nx^2more\ninside"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_neither_text_nor_file_is_told_in_words(fields: dict[str, Any], text: str) -> None:
    inbound = heard(None, **fields)
    assert (inbound.text, inbound.attachments) == (text, ())


TRIP = {"title": "Trip", "tasks": [{"id": 1, "text": "pass", "completion_date": 5}, {"id": 2, "text": "tent"}]}
ORIGIN = {"type": "user", "date": 1, "sender_user": ADA}


@pytest.mark.parametrize(
    ("fields", "quoted"),
    [
        ({}, ""),
        ({"reply_to_message": message("what you said")}, "what you said"),
        ({"reply_to_message": message("x" * 5000)}, "x" * 5000),
        ({"reply_to_message": message(None, photo=PHOTO, caption="my cat")}, "[photo] my cat"),
        ({"reply_to_message": message(None, voice=FILE | {"duration": 1})}, "[voice message]"),
        (
            {"reply_to_message": message(None, rich_message=PAGE)},
            "Prices\nfrom today🙂\ntea | 3\n• one\nx^2more\ninside",
        ),
        ({"reply_to_message": message(None, location={"latitude": 1, "longitude": 2})}, "[location 1.0, 2.0]"),
        ({"reply_to_message": message(None, GROUP, new_chat_members=[ADA])}, ""),
        ({"reply_to_message": message("all of it"), "quote": {"text": "of", "position": 4}}, "of"),
        (
            {"external_reply": {"origin": ORIGIN}, "quote": {"text": "there", "position": 0}},
            "Forwarded from Ada Lovelace:\nthere",
        ),
        (
            {"external_reply": {"origin": ORIGIN}},
            "Forwarded from Ada Lovelace:\n[not shown to bots: quote or forward it]",
        ),
        ({"external_reply": {"origin": ORIGIN, "poll": POLL}}, "Forwarded from Ada Lovelace:\n[poll Tea? yes / no]"),
        ({"reply_to_message": message(None, forum_topic_created={"name": "t", "icon_color": 1}) | {"from": ME}}, ""),
        (
            {
                "reply_to_message": message(None, poll=POLL),
                "reply_to_poll_option_id": POLL["options"][1]["persistent_id"],
            },
            "[poll Tea? yes / no ← meant]",
        ),
        (
            {"external_reply": {"origin": ORIGIN, "checklist": TRIP}, "reply_to_checklist_task_id": 1},
            "Forwarded from Ada Lovelace:\n[checklist Trip; [x] pass ← meant; [ ] tent]",
        ),
    ],
)
def test_what_a_message_replies_to_is_quoted(fields: dict[str, Any], quoted: str) -> None:
    assert heard("yes", **fields).quoted == quoted
    assert heard("yes", GROUP, **fields).quoted == quoted


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"reply_to_message": message(None, GROUP, photo=PHOTO, caption="my cat")}, ["photo-b.jpg"]),
        ({"reply_to_message": message(None, voice=FILE | {"duration": 1})}, ["voice-b.ogg"]),
        ({"reply_to_message": message(None, document=FILE | {"file_name": "lease.pdf"})}, ["lease.pdf"]),
        ({"external_reply": {"origin": ORIGIN, "document": FILE | {"file_name": "far.pdf"}}}, ["far.pdf"]),
        ({"reply_to_message": message("words only")}, []),
    ],
)
def test_the_file_of_the_message_replied_to_comes_along(fields: dict[str, Any], names: list[str]) -> None:
    assert [file.name for file in heard("what is this?", GROUP, **fields).quoted_files] == names
