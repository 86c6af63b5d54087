from datetime import UTC, datetime
from typing import Any

import pytest

from channels.telegram.sdk import load_aiogram
from gateway.domain.conversation.inbound import Address, Inbound

ADA = {"id": 7, "is_bot": False, "first_name": "Ada", "last_name": "Lovelace"}
PRIVATE = {"id": 7, "type": "private", "first_name": "Ada"}
GROUP = {"id": -5, "type": "supergroup", "title": "Engines"}
NEWS = {"id": -9, "type": "channel", "title": "News"}
ME = {"id": 424242, "is_bot": True, "first_name": "Bot", "username": "OurBot"}
PHOTO = [{"file_id": "a", "file_unique_id": "b", "width": 1, "height": 1}]


def message(text: str | None = "hello", chat: dict[str, Any] = PRIVATE, **fields: Any) -> dict[str, Any]:
    content = {} if text is None else {"text": text}
    return {"message_id": 11, "date": 1_700_000_000, "chat": chat, "from": ADA} | content | fields


def read(update: dict[str, Any]) -> Inbound | None:
    load_aiogram()
    from channels.telegram.updates import BotAccount, to_inbound

    return to_inbound({"update_id": 3} | update, BotAccount(424242, "OurBot"))


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


PRESS = {"id": "5", "from": ADA, "chat_instance": "1", "data": "yes 3f"}


def test_a_press_is_the_value_said_by_whoever_pressed() -> None:
    under = message("Shall I?", GROUP, message_thread_id=4, is_topic_message=True) | {"from": ME}
    inbound = read({"callback_query": PRESS | {"message": under}})
    assert inbound is not None
    assert (inbound.text, inbound.sender.id, inbound.platform_id) == ("yes 3f", "7", "button:5")
    assert inbound.address == Address("telegram", "424242", "-5", "4")
    assert not inbound.private
    assert inbound.addressed


def test_a_press_under_a_message_out_of_reach_tells_the_chat() -> None:
    inbound = read({"callback_query": PRESS | {"message": {"chat": PRIVATE, "message_id": 3, "date": 0}}})
    assert inbound is not None
    assert (inbound.address.chat, inbound.text, inbound.private) == ("7", "yes 3f", True)


def test_an_edited_picture_comes_with_its_new_caption() -> None:
    inbound = read({"edited_message": message(None, photo=PHOTO, caption="new", edit_date=1_700_000_099)})
    assert inbound is not None
    assert (inbound.text, inbound.edits) == ("new", "11")
    assert [attachment.ref for attachment in inbound.attachments] == ["a"]


def test_the_pictures_of_an_album_name_it() -> None:
    assert heard(None, photo=PHOTO, media_group_id="9").album == "9"
    assert heard("hello").album == ""


@pytest.mark.parametrize(
    "update",
    [
        {"message": message(None, GROUP, new_chat_members=[ADA])},
        {"message": message(None, GROUP, pinned_message=message())},
        {"message": {key: value for key, value in message().items() if key != "from"}},
        {"poll": {"nonsense": True}},
        {"message": message(None, GROUP, migrate_to_chat_id=-1005)},
        {"message": message(None, GROUP, migrate_from_chat_id=-5)},
        {"message": message(None, GROUP, forum_topic_created={"name": "t", "icon_color": 1})},
        {"channel_post": message("news", NEWS)},
        {"callback_query": {"id": "5", "from": ADA, "chat_instance": "1", "inline_message_id": "x", "data": "y"}},
        {
            "callback_query": {
                "id": "5",
                "from": ADA,
                "chat_instance": "1",
                "message": message(),
                "game_short_name": "g",
            }
        },
        {"message": None},
    ],
    ids=[
        *("join", "pin", "from nobody", "kind we did not ask for", "group moves", "group has moved", "topic opens"),
        *("channel post", "press elsewhere", "press of a game", "nothing"),
    ],
)
def test_what_is_no_concern_of_ours_is_passed_over(update: dict[str, Any]) -> None:
    assert read(update) is None


def test_an_unreadable_update_says_where_and_nothing_of_its_content() -> None:
    with pytest.raises(ValueError, match=r"^message\.date: ") as caught:
        read({"message": message("my password", date="yesterday")})
    assert "yesterday" not in str(caught.value)


NEWER = {"type": "giant", "date": 1}
UNREADABLE = "[a message that isn't readable here; say it in words, or send it as a file]"


@pytest.mark.parametrize(
    ("fields", "text", "source"),
    [
        ({"poll": {"id": "1", "question": "When?"}}, UNREADABLE, ""),
        (
            {"paid_media": {"star_count": 1, "paid_media": [{"type": "newer"}]}, "caption": "see"},
            f"{UNREADABLE} see",
            "",
        ),
        ({"giveaway": {"chats": 5}, "caption": "hi", "via_bot": ME}, f"{UNREADABLE} hi", "the bot Bot"),
        ({"story": 5, "forward_origin": NEWER}, UNREADABLE, "somebody"),
        ({"story": 5, "forward_date": 1}, UNREADABLE, "somebody"),
    ],
)
def test_of_a_kind_in_a_newer_form_the_words_are_read(fields: dict[str, Any], text: str, source: str) -> None:
    inbound = heard(None, **fields)
    assert (inbound.text, inbound.forwarded) == (text, source)


@pytest.mark.parametrize("field", ["reply_to_message", "external_reply", "forward_origin", "reply_markup"])
def test_what_is_said_about_a_message_and_cannot_be_read_costs_nobody_the_message(field: str) -> None:
    newer = message(None, rich_message={"blocks": [{"type": "hologram"}]})
    assert (
        heard("yes", **{field: newer if field == "reply_to_message" else {"type": "hologram", "origin": 1}}).text
        == "yes"
    )


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
        ("/etc/passwd what is in it?", {}, False),
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
    load_aiogram()
    from channels.telegram.updates import BotAccount

    assert not BotAccount(1, "").is_called("@")
