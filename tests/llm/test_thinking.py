"""Thinking in the text of an answer, however it is marked and cut, and what only looks like it."""

from itertools import product

import pytest

from gateway.llm.protocol.thinking import ThinkingFilter


def passed(text: str, size: int = 1, *, thinks_first: bool = False) -> str:
    """The text that is shown in the end of one that comes in pieces of this size."""
    filter, shown = ThinkingFilter(thinks_first), ""
    for start in range(0, len(text), size):
        piece = filter.add(text[start : start + size])
        shown = piece if filter.dropped else shown + piece
    return shown + filter.end()


FENCED = "Write\n```html\n<think>keep</think>\n```\nHello"
TEXTS = [
    ("<think>secret</think>Hello", "Hello"),
    ("<THINK>secret\n</Think>\n\nHello", "\n\nHello"),
    ("\n<think>a < b, `</think` and <think></think>Hello", "\nHello"),
    ("<think></think>Hello<think>more</think>.", "Hello."),
    ("secret.\n</think>\n\nHello", "\n\nHello"),
    ("secret <think>x</think> more </think>Hello", "Hello"),
    ("<think>secret goes on", ""),
    ("<thinking>secret</thinking>Hello", "Hello"),
    ("[THINK]secret[/THINK]Hello", "Hello"),
    ("◁think▷secret◁/think▷Hello", "Hello"),
    (FENCED, FENCED),
    ("~~~\n</think>\n~~~\n<think>no</think>yes", "~~~\n</think>\n~~~\nyes"),
    ("Write `<think>` before and `</think>` after.", "Write `<think>` before and `</think>` after."),
    ("In XML: <thinking>keep</thinking>", "In XML: <thinking>keep</thinking>"),
    ("a < b and <thin", "a < b and <thin"),
    ("Hello<|im_end|>\n", "Hello"),
    ("Hello</s>", "Hello"),
    ("Hello<｜end▁of▁sentence｜>", "Hello"),
    ("<|im_end|>", "<|im_end|>"),
    ("The mark <|im_end|> ends it.", "The mark <|im_end|> ends it."),
    ("It is `</s>`", "It is `</s>`"),
    ("<|start|>assistant<|channel|>analysis<|message|>secret<|end|>Hello<|return|>", "Hello"),
    ("<|channel|>commentary<|message|>Hello", "Hello"),
    ("<|channel>thought\nsecret<channel|>Hello", "Hello"),
    ("<think>secret</think><|begin_of_box|>Hello<|end_of_box|>", "Hello"),
    ("</think>Hello", "Hello"),
    ("", ""),
]


@pytest.mark.parametrize(("case", "size"), [*product(TEXTS, (1, 3, 7, 1000))])
def test_only_the_answer_is_shown(case: tuple[str, str], size: int) -> None:
    assert passed(case[0], size) == case[1]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_model_that_begins_by_thinking_shows_nothing_before_the_end_of_it(size: int) -> None:
    filter = ThinkingFilter(thinks_first=True)
    assert filter.add("secret ") == filter.add("plan") == ""
    assert passed("secret plan</think>Hello", size, thinks_first=True) == "Hello"
    assert passed("An answer without it.", size, thinks_first=True) == "An answer without it."
