"""The output of commands as a terminal shows it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.exec.terminal import HEIGHT, MAX_PADDING, rendered

BAR = "".join(f"\r\033[2K{percent}%" for percent in range(101))
TWO_BARS = "a 0%\nb 0%\n" + "".join(f"\033[2A\r\033[Ka {n}%\n\033[Kb {n}%\n" for n in range(1, 101))


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("plain\ttext\nä 😀\n", "plain\ttext\nä 😀\n"),
        (f"{BAR}\ndone\n", "100%\ndone\n"),
        ("\033[31mred\033[0m ok\n\033]0;title\007x\n", "red ok\nx\n"),
        ("\033]8;;https://a.example\033\\link\033]8;;\033\\", "link"),
        ("\033]0;never ended\nthe text\n", "\nthe text\n"),
        ("10%\b\b\b20%\n", "20%\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("long line\rab\n", "abng line\n"),
        ("long line\rab\033[K\n", "ab\n"),
        ("abc\033[2D\033[1K!\n", " !c\n"),
        ("a\033[5Cb\033[2Gc", "ac    b"),
        (TWO_BARS, "a 100%\nb 100%\n"),
        ("before\n\033[H\033[2Jafter\n", "after\n"),
        ("x\n" * 100 + "\033[Htop", "x\n" * 51 + "top" + "\nx" * 48),
        ("\033[38;2;1;2;3mrgb\033(B\0337\0338\033=\x07\0\x7f", "rgb"),
        ("\x9b31mc1\x9d0;t\x9c\x85", "c1"),
        ("\033[999999999C\033[9Gx\033[99999999Cy", " " * 8 + "x" + " " * (MAX_PADDING - 9) + "y"),
        ("cut\033[3", "cut"),
        ("cut\033", "cut"),
    ],
)
def test_output_is_what_a_terminal_shows(output: str, shown: str) -> None:
    assert rendered(output) == shown


@given(st.text(st.sampled_from("ab\r\n\b\t\x1b[]0123;?ABCDEFGHJKPmh\x07\x9b"), max_size=200))
def test_any_output_has_no_codes_left_and_stays_small(output: str) -> None:
    shown = rendered(output)
    assert not set(shown) & set("\r\b\x1b\x07\x9b")
    assert len(shown) <= (len(output) + HEIGHT) * (MAX_PADDING + 1)
    assert rendered(shown) == shown
