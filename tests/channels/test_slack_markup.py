import pytest

from channels.slack.markup import defused, mentioned, readable, to_mrkdwn, without_mention


@pytest.mark.parametrize(
    ("markup", "seen"),
    [
        ("a &lt; b &amp;&amp; c", "a < b && c"),
        ("&amp;lt;", "&lt;"),
        ("ask <@U1> or <@U2|bob>", "ask @Ada or @bob"),
        ("<@U9>", "@U9"),
        ("in <#C1|general>, <#C2>", "in #general, #C2"),
        ("<!here> <!subteam^S1|@team> <!subteam^S1>", "@here @team @S1"),
        ("<!date^1^{date}|yesterday>", "yesterday"),
        ("<https://x.example/a?b=1&amp;c=2>", "https://x.example/a?b=1&c=2"),
        ("<https://x.example|the page>", "the page (https://x.example)"),
        ("<http://x.example/|x.example>", "http://x.example/"),
        ("<mailto:a@b.c|a@b.c>", "a@b.c"),
        ("a\0b", "ab"),
        ("<unclosed and < spaced", "<unclosed and < spaced"),
    ],
)
def test_markup_reads_as_its_writer_saw_it(markup: str, seen: str) -> None:
    assert readable(markup, {"U1": "Ada"}) == seen


def test_ten_thousand_mentions_are_read() -> None:
    text = "<@U1> " * 10_000
    assert mentioned(text) == ("U1",)
    assert readable(text, {}).count("@U1") == 10_000


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<@U1> hello", "hello"),
        (" <@U1|claw>, hello", "hello"),
        ("hello <@U1>", "hello <@U1>"),
        ("<@U2> hello", "<@U2> hello"),
        ("<@U1>", ""),
    ],
)
def test_only_the_name_a_text_begins_with_is_left_out(text: str, rest: str) -> None:
    assert without_mention(text, "U1") == rest


@pytest.mark.parametrize(
    ("markdown", "mrkdwn"),
    [
        ("plain", "plain"),
        ("**b** *i* ~~s~~ `c`", "*b* _i_ ~s~ `c`"),
        ("***both***", "_*both*_"),
        ("# A **big** title", "*A big title*"),
        ("un**frigging**real", "un\u200b*frigging*\u200breal"),
        ("`a``b`", "`aˋˋb`"),
        ("``a`b``", "`aˋb`"),
        ("```py\nx < 1\n```", "```\nx &lt; 1\n```"),
        ("- a\n- b\n  1. c", "• a\n• b\n    1. c"),
        ("3. c\n4. d", "3. c\n4. d"),
        ("> one\n> two", "> one\n> two"),
        ("[x & y](https://e.x/?a=1&b=2)", "<https://e.x/?a=1&amp;b=2|x &amp; y>"),
        ("<https://e.x>", "<https://e.x>"),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("[a|b](https://e.x/a|b)", "<https://e.x/a%7Cb|a¦b>"),
        ("[![pic](https://i.x)](https://e.x)", "<https://i.x|pic>"),
        ("![](https://i.x)", "<https://i.x|image>"),
        ("a | b\n-|-\n1 | **22**", "```\na  b\n─  ──\n1  22\n```"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("<!channel> <@U1> & co", "&lt;!channel&gt; &lt;@U1&gt; &amp; co"),
        ("#", "#"),
    ],
)
def test_markdown_becomes_what_slack_can_show(markdown: str, mrkdwn: str) -> None:
    assert to_mrkdwn(markdown) == mrkdwn


def test_a_fence_cannot_be_left_from_inside() -> None:
    shown = to_mrkdwn("````\n```\n<!channel>\n````")
    assert shown.count("```") == 2
    assert "<!" not in shown


def test_no_nesting_is_too_deep_and_no_text_too_long() -> None:
    assert to_mrkdwn("> " * 5000 + "x").endswith(" x")
    assert to_mrkdwn("*" * 5000 + "x" + "*" * 5000).strip()
    assert to_mrkdwn("a" * 100_000 + "<") == "a" * 100_000 + "&lt;"


def test_a_growing_answer_calls_nobody_and_grows_evenly() -> None:
    text = "hi <!channel> and <@U1> but 1 < 2"
    assert "<!" not in defused(text)
    assert "<@" not in defused(text)
    assert all(defused(text).startswith(defused(text[:end])) for end in range(len(text)))


def test_a_table_too_wide_for_a_phone_is_a_list() -> None:
    wide = "|City|What people say *there*|Price|\n|-|-|-|\n|Rome|It is warm, and the food is good|€5|\n|Oslo||€9|"
    assert to_mrkdwn(wide) == (
        "• City: Rome\n    What people say there: It is warm, and the food is good\n    Price: €5\n"
        "• City: Oslo\n    Price: €9"
    )
    assert to_mrkdwn("|a|b|\n|-|-|\n|1|2|").startswith("```")
