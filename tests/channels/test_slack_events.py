from typing import Any

import pytest

from channels.slack import events
from channels.slack.events import SentMessage, UnreadableEvent, as_command
from channels.slack.payloads import AppAccount
from gateway.domain.conversation.inbound import Inbound

US = AppAccount(team_id="T1", user_id="UBOT", user="claw", bot_id="BBOT")
COMMANDS = frozenset({"new", "help"})
MESSAGE: dict[str, Any] = {
    "type": "message",
    "ts": "1700000000.000100",
    "user": "U1",
    "text": "hello",
    "channel": "C1",
    "channel_type": "channel",
}


def event(**about: Any) -> SentMessage | None:
    return events.read_message(MESSAGE | about, US)


def said(**about: Any) -> SentMessage:
    found = event(**about)
    assert isinstance(found, SentMessage)
    return found


def inbound(**about: Any) -> Inbound:
    return said(**about).inbound(US, {"U1": "Ada"}, COMMANDS, addressed=True)


def test_a_message_in_a_channel_begins_a_thread_and_one_in_a_direct_message_does_not() -> None:
    assert said().at.thread == MESSAGE["ts"]
    assert said(thread_ts="1.5").at.thread == "1.5"
    assert said(channel="D1", channel_type="im").at.thread == ""
    assert said(channel="D1", channel_type="im", thread_ts="1.5").at.thread == "1.5"
    assert not said(channel="G1", channel_type="mpim").private


def test_a_mention_tells_no_kind_of_chat_and_is_the_same_message() -> None:
    mention = inbound(type="app_mention", channel_type=None, text="<@UBOT> hello")
    message = inbound(text="<@UBOT> hello")
    assert mention == message
    assert mention.text == "hello"


@pytest.mark.parametrize("subtype", ["file_share", "thread_broadcast", "me_message"])
def test_some_subtypes_are_messages(subtype: str) -> None:
    assert said(subtype=subtype).sender == "U1"


@pytest.mark.parametrize(
    "about",
    [
        {"user": None},
        {"subtype": "message_changed"},
        {"subtype": "message_changed", "message": MESSAGE},
    ],
)
def test_what_is_no_news_is_ignored(about: dict[str, Any]) -> None:
    assert event(**about) is None


def test_what_another_bot_says_is_flagged() -> None:
    assert inbound(user=None, bot_id="B9", subtype="bot_message").sender.is_bot
    assert inbound(bot_id="B9").sender.is_bot


def edit(text: str, **message: Any) -> SentMessage | None:
    now = MESSAGE | {"text": text, "edited": {"user": "U1", "ts": "1700000009.000000"}} | message
    return event(subtype="message_changed", ts="1700000009.000100", message=now, previous_message=MESSAGE)


def test_an_edit_names_the_message_and_has_an_id_of_its_own() -> None:
    changed = edit("hullo")
    assert isinstance(changed, SentMessage)
    told = changed.inbound(US, {}, COMMANDS, addressed=True)
    assert (told.edits, told.platform_id) == (MESSAGE["ts"], f"{MESSAGE['ts']}:1700000009.000000")
    assert (told.text, told.address.thread, told.sent_at.second) == ("hullo", MESSAGE["ts"], 29)


def test_a_change_that_nobody_made_is_ignored() -> None:
    assert edit("hello") is None
    assert edit("hullo", edited=None) is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("!new", "/new"),
        ("!new about cats", "/new about cats"),
        ("!important", "!important"),
        ("!", "!"),
        ("new", "new"),
        ("! new", "! new"),
    ],
)
def test_a_command_is_written_with_an_exclamation_mark(text: str, command: str) -> None:
    assert as_command(text, COMMANDS) == command
    assert inbound(text=f"<@UBOT> {text}").text == command


@pytest.mark.parametrize("text", ["!new", "/new"])
def test_talk_of_others_is_never_a_command(text: str) -> None:
    told = said(text=text).inbound(US, {}, COMMANDS, addressed=False)
    assert not told.text.startswith("/")


def slash(text: str, **about: Any) -> Inbound:
    payload = {"command": "/claw", "text": text, "user_id": "U1", "user_name": "ada", "channel_id": "C1"}
    return events.read_action(payload | {"trigger_id": "1.2.abc"} | about, US, COMMANDS)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("new", "/new"),
        ("/new x", "/new x"),
        ("!new", "/new"),
        ("how are you?", "how are you?"),
        ("", "/help"),
    ],
)
def test_what_follows_a_slash_command_is_a_command_or_a_message(text: str, meant: str) -> None:
    assert slash(text).text == meant


def test_a_slash_command_is_known_by_its_trigger_and_private_in_direct_messages_only() -> None:
    told = slash("hello")
    assert (told.platform_id, told.private, told.address.thread) == ("action:1.2.abc", False, "")
    assert told.sender.name == "ada"
    assert slash("hello", channel_name="directmessage").private


def press(**about: Any) -> Inbound:
    payload = {
        "type": "block_actions",
        "user": {"id": "U1", "username": "ada"},
        "container": {"channel_id": "C1", "message_ts": "1.1", "thread_ts": "1.0"},
        "channel": {"id": "C1", "name": "general"},
        "trigger_id": "1.3.abc",
        "actions": [{"type": "button", "value": "/approve A17", "action_ts": "1700000000.5"}],
    }
    return events.read_action(payload | about, US, COMMANDS)


def test_a_press_says_the_value_where_the_button_is() -> None:
    told = press()
    assert (told.text, told.address.thread, told.private) == ("/approve A17", "1.0", False)
    assert (told.platform_id, told.sender.name) == ("action:1.3.abc", "ada")


def test_a_press_finds_its_thread_in_the_message_too() -> None:
    told = press(container={"channel_id": "D1", "message_ts": "1.1"}, message={"ts": "1.1", "thread_ts": "1.0"})
    assert (told.address.thread, told.private) == ("1.0", True)


def test_files_are_announced_as_slack_knows_them_and_deleted_ones_are_not() -> None:
    files = [
        {"id": "F1", "name": "a\0.pdf", "mimetype": "application/pdf", "size": 5, "url_private_download": "https://x"},
        {"id": "F2", "mode": "tombstone"},
        {"id": "F3", "name": None, "mimetype": None, "size": None},
    ]
    first, second = inbound(files=files, subtype="file_share").attachments
    assert (first.ref, first.name, first.mime, first.size) == ("F1", "a.pdf", "application/pdf", 5)
    assert (second.ref, second.name, second.size) == ("F3", "", None)


def test_a_message_forwarded_with_a_word_is_quoted() -> None:
    shared = [{"text": "look &lt;here&gt;", "is_share": True, "author_name": "Eve\n"}, {"text": "preview"}]
    said = inbound(attachments=shared)
    assert (said.text, said.quoted, said.forwarded) == ("hello", "Forwarded from Eve:\nlook <here>", "")
    assert inbound(attachments=[shared[0] | {"text": "x" * 3000 + "end"}]).quoted.endswith("xend")


@pytest.mark.parametrize(
    "broken",
    [
        {"channel": {"id": 5}},
        {"channel": "../etc"},
        {"ts": "now"},
        {"ts": "9" * 30 + ".1"},
        {"text": ["x"]},
        {"user": "U 1"},
        {"files": [{"id": ["F1"]}]},
    ],
)
def test_what_slack_would_never_send_is_unreadable(broken: dict[str, Any]) -> None:
    with pytest.raises(UnreadableEvent, match=r"^\S+: "):
        event(**broken)
