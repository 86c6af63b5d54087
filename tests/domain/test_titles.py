import pytest

from gateway.agent.work.task_trees import ORDERS
from gateway.domain.text.texts import MAX_TITLE, UNTITLED, clipped, title


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("Plan a trip to Lisbon", "Plan a trip to Lisbon"),
        ("Plan a trip. And book it.", "Plan a trip"),
        ("\n\n## A plan\nwith lines", "A plan"),
        ("> what somebody said\n> before\n\nIs that right?", "Is that right?"),
        ("[Forwarded from Bo]\n> Buy milk", "Buy milk"),
        ("> only a quote", "only a quote"),
        (f"{ORDERS}\n\nCompare the offers", "Compare the offers"),
        ("   ", UNTITLED),
        ("明天的天气怎么样？", "明天的天气怎么样？"),
    ],
)
def test_a_title_is_the_beginning_of_what_was_said_first(asked: str, expected: str):
    assert title(asked) == expected


def test_a_summary_has_the_better_title():
    assert title("hi", "The user wants to plan a trip to Lisbon. Decided: May.") == "Plan a trip to Lisbon"
    assert title("hi", "A trip to Lisbon. Decided: May.") == "A trip to Lisbon"
    assert title("hi", "  ") == "hi"


def test_a_message_without_words_is_called_by_its_file():
    assert title("", file="scan.pdf") == "scan.pdf"


def test_a_title_is_one_plain_line_cut_between_words():
    long = title("word " * 100)
    assert (len(long) <= MAX_TITLE + 1, long.endswith("word…")) == (True, True)
    assert clipped("a\u202eb`c`\nd") == "a b c d"
