"""Whatever a messenger sends: it is something that happened, of no interest, or unreadable, and nothing else."""

from contextlib import suppress
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from channels.slack import events as slack
from channels.slack.payloads import AppAccount as SlackUs
from channels.telegram.sdk import load_aiogram
from tests.channels.test_slack_events import MESSAGE
from tests.channels.test_telegram_updates import PRIVATE, message

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
UPDATES: list[dict[str, Any]] = [
    {"update_id": 3, "message": message("hello", PRIVATE)},
    {"update_id": 3, "edited_message": message("hello", PRIVATE, edit_date=1_700_000_099)},
    {"update_id": 3, "stopped_message_generation": {"chat": PRIVATE, "draft_id": 5}},
    {
        "update_id": 3,
        "callback_query": {
            "id": "1",
            "from": {"id": 7, "is_bot": False, "first_name": "Ada"},
            "chat_instance": "1",
            "data": "/approve A17",
            "message": message("hello", PRIVATE),
        },
    },
]
EVENTS: list[dict[str, Any]] = [
    MESSAGE,
    {**MESSAGE, "subtype": "message_changed", "message": MESSAGE, "previous_message": MESSAGE},
    {"type": "block_actions", "user": {"id": "U1"}, "channel": {"id": "D1"}, "actions": [{"value": "/help"}]},
]


@st.composite
def spoilt(draw: st.DrawFn, good: list[dict[str, Any]]) -> dict[str, Any]:
    """A good one in which up to three fields, at any depth, are something else or missing."""
    made = deepcopy(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = made
        while isinstance(place, dict) and place:
            name = draw(st.sampled_from(sorted(place, key=str)))
            if isinstance(place[name], dict) and place[name] and draw(st.booleans()):
                place = place[name]
                continue
            if draw(st.booleans()):
                place[name] = draw(JSON)
            else:
                del place[name]
            break
    return made


@given(spoilt(UPDATES))
def test_telegrams_updates(update: dict[str, Any]) -> None:
    load_aiogram()
    from channels.telegram.updates import BotAccount, UnreadableUpdate, to_inbound

    with suppress(UnreadableUpdate):
        to_inbound(update, BotAccount(424242, "OurBot"))


@given(spoilt(EVENTS))
def test_slacks_events(event: dict[str, Any]) -> None:
    us = SlackUs(team_id="T1", user_id="UBOT", user="claw", bot_id="BBOT")
    for read in (lambda: slack.read_message(event, us), lambda: slack.read_action(event, us, frozenset({"help"}))):
        with suppress(slack.UnreadableEvent):
            found = read()
            if isinstance(found, slack.SentMessage):
                found.inbound(us, {}, frozenset({"help"}), addressed=True)
