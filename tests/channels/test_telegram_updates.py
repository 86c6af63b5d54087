from datetime import UTC, datetime
from typing import Any

import pytest

from channels.telegram import preload
from gateway.domain.inbound import Address, Inbound

ADA = {"id": 7, "is_bot": False, "first_name": "Ada", "last_name": "Lovelace"}
PRIVATE = {"id": 7, "type": "private", "first_name": "Ada"}
GROUP = {"id": -5, "type": "supergroup", "title": "Engines"}
NEWS = {"id": -9, "type": "channel", "title": "News"}
ME = {"id": 424242, "is_bot": True, "first_name": "Bot", "username": "OurBot"}
PHOTO = [{"file_id": "a", "file_unique_id": "b", "width": 1, "height": 1}]
FILE = {"file_id": "a", "file_unique_id": "b"}
STICKER = FILE | {"type": "regular", "width": 1, "height": 1, "is_animated": False, "is_video": False}


def message(text: str | None = "hello", chat: dict[str, Any] = PRIVATE, **fields: Any) -> dict[str, Any]:
    content = {} if text is None else {"text": text}
    return {"message_id": 11, "date": 1_700_000_000, "chat": chat, "from": ADA} | content | fields


def read(update: dict[str, Any]) -> Inbound | None:
    preload()
    from channels.telegram.updates import Us, to_inbound

    return to_inbound({"update_id": 3} | update, Us(424242, "OurBot"))


def heard(text: str | None = "hello", chat: dict[str, Any] = PRIVATE, **fields: Any) -> Inbound:
    inbound = read({"message": message(text, chat, **fields)})
    assert inbound is not None
    return inbound


def entity(kind: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "offset": 0, "length": len(text)} | fields


def test_a_private_message_is_told_in_full() -> None:
    inbound = heard()
    assert inbound.address == Address("telegram", "424242", "7")
    assert (inbound.sender.id, inbound.sender.name, inbound.sender.is_bot) == ("7", "Ada Lovelace", False)
    assert (inbound.text, inbound.platform_id, inbound.edits) == ("hello", "11", None)
    assert inbound.sent_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert inbound.private
    assert inbound.addressed


def test_an_edit_has_an_id_and_a_time_of_its_own() -> None:
    inbound = read({"edited_message": message("hi", edit_date=1_700_000_099)})
    assert inbound is not None
    assert (inbound.edits, inbound.platform_id) == ("11", "11:3")
    assert inbound.sent_at == datetime.fromtimestamp(1_700_000_099, UTC)


def test_the_stop_button_is_the_stop_command() -> None:
    inbound = read({"stopped_message_generation": {"chat": PRIVATE, "draft_id": 5}})
    assert inbound is not None
    assert (inbound.text, inbound.sender.id, inbound.platform_id) == ("/stop", "7", "stop:3")
    assert inbound.address == Address("telegram", "424242", "7")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"photo": PHOTO, "caption": "my cat"}, "[photo, not readable yet] my cat"),
        ({"voice": FILE | {"duration": 1}}, "[voice message, not readable yet]"),
        ({"document": FILE}, "[document, not readable yet]"),
        (
            {"animation": FILE | {"width": 1, "height": 1, "duration": 1}, "document": FILE},
            "[animation, not readable yet]",
        ),
        ({"sticker": STICKER}, "[sticker, not readable yet]"),
        ({"location": {"latitude": 1, "longitude": 2}}, "[location, not readable yet]"),
    ],
)
def test_what_is_not_text_is_named(fields: dict[str, Any], text: str) -> None:
    assert heard(None, **fields).text == text


def test_a_nul_character_does_not_reach_the_database() -> None:
    assert heard("a\0b").text == "ab"


@pytest.mark.parametrize(
    "update",
    [
        {"message": message(None, GROUP, new_chat_members=[ADA])},
        {"message": message(None, GROUP, pinned_message=message())},
        {"message": {key: value for key, value in message().items() if key != "from"}},
        {"poll": {"nonsense": True}},
        {"channel_post": message("news", NEWS)},
        {"message": None},
    ],
    ids=["join", "pin", "from nobody", "kind we did not ask for", "channel post", "nothing"],
)
def test_what_is_no_concern_of_ours_is_passed_over(update: dict[str, Any]) -> None:
    assert read(update) is None


def test_an_unreadable_update_says_where_and_nothing_of_its_content() -> None:
    with pytest.raises(ValueError, match=r"^message\.date: ") as caught:
        read({"message": message("my password", date="yesterday")})
    assert "yesterday" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [{"from": ADA | {"is_bot": True}}, {"sender_chat": NEWS}, {"sender_chat": GROUP}],
    ids=["bot", "channel", "anonymous admin"],
)
def test_whoever_is_not_a_person_counts_as_a_bot(fields: dict[str, Any]) -> None:
    assert heard("hello", GROUP, **fields).sender.is_bot


def test_a_topic_is_a_thread_and_a_reply_chain_is_not() -> None:
    assert heard(chat=GROUP, message_thread_id=4, is_topic_message=True).address.thread == "4"
    assert heard(chat=GROUP, message_thread_id=4).address.thread == ""


@pytest.mark.parametrize(
    ("text", "fields", "addressed"),
    [
        ("what a day", {}, False),
        ("@ourbot hi", {"entities": [entity("mention", "@ourbot")]}, True),
        ("@other hi", {"entities": [entity("mention", "@other")]}, False),
        ("Bot, hi", {"entities": [entity("text_mention", "Bot", user=ME)]}, True),
        ("yes", {"reply_to_message": message(chat=GROUP) | {"from": ME}}, True),
        ("yes", {"reply_to_message": message(chat=GROUP)}, False),
        (
            "yes",
            {
                "reply_to_message": message(None, GROUP, forum_topic_created={"name": "t", "icon_color": 1})
                | {"from": ME}
            },
            False,
        ),
        (None, {"photo": PHOTO, "caption": "@OurBot see", "caption_entities": [entity("mention", "@OurBot")]}, True),
        ("/new", {}, True),
        ("/new@OurBot now", {}, True),
        ("/new@OtherBot now", {}, False),
    ],
)
def test_in_a_group_we_are_addressed_by_name_reply_or_command(
    text: str | None, fields: dict[str, Any], addressed: bool
) -> None:
    assert heard(text, GROUP, **fields).addressed is addressed


def test_a_command_loses_our_name_only() -> None:
    assert heard("/model@OurBot fast one", GROUP).text == "/model fast one"
    assert heard("/model@OtherBot fast", GROUP).text == "/model@OtherBot fast"


def test_nobody_is_called_before_the_name_is_known() -> None:
    preload()
    from channels.telegram.updates import Us

    assert not Us(1, "").is_called("@")
