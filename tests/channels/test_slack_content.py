"""Blocks and attachments: every text of every block is told, or named among what is left out."""

import inspect
from typing import Any

import pytest
from slack_sdk.models import attachments, blocks
from slack_sdk.models.blocks import Block, BlockElement, RichTextElementParts, block_elements
from slack_sdk.models.blocks import basic_components as components

from channels.slack.content import FIELDS, shown
from channels.slack.payloads import UNREADABLE, Message
from tests.channels.test_slack_events import inbound

OBJECTS = (Block, BlockElement, components.JsonObject, block_elements.RichTextElement)
KINDS = {
    each
    for module in (blocks, blocks.blocks, block_elements, components, attachments, RichTextElementParts)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, OBJECTS) and each.__module__.startswith("slack_sdk.models")
}
OF_RICH_TEXT = {"link", "user", "channel", "usergroup", "broadcast", "emoji", "date", "text", "color", "team"}
"""Their pieces have words only together; `test_rich_text_reads_as_it_is_shown` has them."""


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__qualname__), ids=lambda kind: kind.__qualname__)
def test_every_text_of_a_block_is_told_or_named_as_left_out(kind: type[Any]) -> None:
    if getattr(kind, "type", None) in OF_RICH_TEXT:
        return
    names = inspect.signature(kind).parameters.keys() - {"others", "kwargs", "args", "type"}
    part = {name: f"<{name}-text>" for name in names}
    assert {name for name, text in part.items() if text not in shown(part)} <= FIELDS


def test_rich_text_reads_as_it_is_shown() -> None:
    section = {"type": "rich_text_section", "elements": [
        {"type": "text", "text": "a < b "}, {"type": "link", "url": "https://e.org", "text": "here"},
        {"type": "user", "user_id": "U1"}, {"type": "emoji", "name": "tea"}, {"type": "broadcast", "range": "here"},
        {"type": "date", "timestamp": 1, "fallback": "today"}, {"type": "channel", "channel_id": "C1"},
        {"type": "color", "value": "#f00"}, {"type": "team", "team_id": "T1"},
    ]}  # fmt: skip
    assert shown(section) == "a &lt; b <https://e.org|here><@U1>:tea:@heretoday<#C1>#f00@T1"
    assert shown({"type": "rich_text_list", "elements": [section, section]}).count("• a") == 2
    old = {"type": "rich_text_section", "elements": [{"type": "text", "text": "old", "style": {"strike": True}}]}
    assert shown({"type": "rich_text_list", "style": "ordered", "offset": 2, "elements": [old]}) == "3. ~old~"


@pytest.mark.parametrize(
    ("date", "text"), [({"timestamp": 1_800_000_000}, "Fri 2027-01-15 08:00 UTC"), ({"timestamp": 10**30}, "")]
)
def test_a_date_without_words_is_told_by_its_time(date: dict[str, Any], text: str) -> None:
    assert shown({"type": "date", "format": "{date}", **date}) == text


UNKNOWN = {"type": "newer", "cards": [1]}


def test_what_cannot_be_read_is_named_and_costs_nobody_the_message() -> None:
    odd = {
        "attachments": [
            {"title": "One", "text": ["a"]},
            {"title": 2, "text": 3, "fields": [{"title": "Is", "value": 4}]},
        ]
    }
    assert inbound(**odd).added == f"{UNREADABLE}\n\n3\nIs: 4"
    assert inbound(text="", blocks=[UNKNOWN]).text == UNREADABLE
    assert inbound(text="hi", blocks=[UNKNOWN]).text == "hi"
    assert Message(ts="1.1", blocks=(UNKNOWN,)).whole == UNREADABLE
    assert (
        shown({"type": "image", "alt_text": "", "image_url": "https://e.org"})
        == "[picture: not read; send it as a file]"
    )


def test_of_a_file_that_is_kept_elsewhere_the_address_is_told() -> None:
    budget = {"id": "F1", "name": "Budget", "is_external": True, "url_private": "https://docs.example/1"}
    assert inbound(files=[budget]).added == "Budget is kept at https://docs.example/1"


def test_a_call_has_its_name_and_a_chart_its_numbers() -> None:
    call = {"id": "R1", "name": "Weekly", "join_url": "https://e.org/1", "created_by": "U1"}
    assert shown({"type": "call", "call_id": "R1", "call": {"v1": call}}) == "[call Weekly: https://e.org/1]"
    series = [{"name": "Rent", "data": [{"label": "May", "value": 700}, {"label": "June", "value": 7.5}]}]
    chart = {"type": "data_visualization", "title": "Costs", "chart": {"type": "bar", "series": series}}
    assert shown(chart) == "Costs\nRent: May: 700, June: 7.5"


BREAD = {"type": "text", "text": "Bread"}
TABLE = {"type": "table", "rows": [
    [{"type": "raw_text", "text": "Item"}, {"type": "raw_text", "text": "Price"}],
    [{"type": "raw_text", "text": "Tea"}, {"type": "raw_number", "value": 12, "text": "12"}],
    [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [BREAD]}]},
     {"type": "raw_text", "text": ""}],
]}  # fmt: skip
ROWS = "Item | Price\nTea | 12\nBread | "


@pytest.mark.parametrize("text", ["sum these", ""])
@pytest.mark.parametrize(
    "about", [{"attachments": [{"fallback": "[no preview]", "blocks": [TABLE]}]}, {"blocks": [TABLE]}]
)
def test_a_pasted_table_stands_beside_the_words(about: dict[str, Any], text: str) -> None:
    said = inbound(text=text, **about)
    assert (said.text, said.added) == (text, ROWS.strip())


def test_the_block_that_repeats_the_text_says_nothing_new() -> None:
    typed = {"type": "rich_text", "elements": [
        {"type": "rich_text_section", "elements": [{"type": "text", "text": "hello"}]}
    ]}  # fmt: skip
    assert inbound(blocks=[typed]).added == ""


def test_an_alert_is_told_in_full_and_a_transcript_is_not_the_persons_word() -> None:
    alert = {"title": "CPU high on db-3", "title_link": "https://a.example/17", "text": "load 31", "fallback": "CPU"}
    root = Message.model_validate(
        {
            "ts": "1.1",
            "bot_id": "B5",
            "text": "",
            "attachments": [{**alert, "fields": [{"title": "Is", "value": "bad"}]}],
        }
    )
    assert set(root.whole.split("\n")) == {"load 31", "CPU high on db-3", "https://a.example/17", "Is: bad"}
    gone = inbound(files=[{"id": "F1", "name": "a.txt", "mode": "tombstone"}])
    assert gone.added == "[file a.txt: Slack no longer has it; send it again]"
    assert inbound(attachments=[{"image_url": "https://e.org/x"}]).added == "[picture]"
    assert inbound(attachments=[{"author_name": "Bo", "text": "load 31"}]).added == "Bo\nload 31"
    number = {"type": "table", "rows": [[{"type": "raw_number", "value": 7}]]}
    assert inbound(text="", blocks=[number]).added == "7"
    clip = {"id": "F1", "name": "v.m4a", "transcription": {"status": "complete", "preview": {"content": "buy tea"}}}
    assert inbound(files=[clip]).added == "Slack's transcript of v.m4a: buy tea"
