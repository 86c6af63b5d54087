"""The output of commands as a terminal shows it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.exec.terminal import HEIGHT, MAX_PADDING, Screen, rendered

BAR = "".join(f"\r\033[2K{percent}%" for percent in range(101))
TWO_BARS = "a 0%\nb 0%\n" + "".join(f"\033[2A\r\033[Ka {n}%\n\033[Kb {n}%\n" for n in range(1, 101))


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("plain\ttext\nä 😀\n", "plain\ttext\nä 😀\n"),
        (f"{BAR}\ndone\n", "100%\ndone\n"),
        ("\033[31mred\033[0m ok\n\033]0;title\007x\n", "red ok\nx\n"),
        ("\033]8;;https://a.example\033\\link\033]8;;\033\\", "link"),
        ("\033kshell\033\\50%\b\b\b70%\n", "70%\n"),
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


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("0123456789abc", "0123456789\nabc"),
        ("0123456789\r\nabc", "0123456789\nabc"),
        ("a\tb\nc\r\n\td", "a       b\n         c\n        d"),
        ("\033[1;3H12345678\033[1;5H\033[2@-\033[3P", "  12-56"),
        ("\033[1;3H12345\033[3G\033[2X", "    345"),
        ("1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"),
        ("a\r\nb\r\nc\r\nd\033[2;3r\033[3;1H\ne", "a\nc\ne\nd"),
        ("a\r\nb\r\nc\r\nd\033[2;3r\033[2;1H\033Me", "a\ne\nb\nd"),
        ("a\r\nb\r\nc\033[2;1H\033[Lx", "a\nx\nb\nc"),
        ("a\r\nb\r\nc\033[1;1H\033[M\033[3dx", "b\nc\nx"),
        ("ab\0337\033[4;1Hx\0338\033[4hc\033[1;1Hd\033[4le", "debc\n\n\nx"),
        ("ab\0337cd\033#8e\033[?1re\033[>4;2mf", "abcdeef"),
        ("shell\033[?1049h\033[Hvi\033[?1049l\033[Hback", "back"),
    ],
)
def test_a_screen_has_edges_and_margins(output: str, shown: str) -> None:
    whole, cut = Screen(4, 10), Screen(4, 10)
    whole.feed(output)
    for char in output:
        cut.feed(char)
    assert (whole.text, cut.text) == (shown, shown)


@given(st.text(st.sampled_from("ab\t\r\n\b\x1b[]0139;?78ABCDEFGHJKLMPX@SdhlmrDEM\x07\x9b"), max_size=300))
def test_no_output_leaves_the_screen(output: str) -> None:
    screen = Screen(5, 12)
    screen.feed(output)
    assert len(screen.rows) == 5
    assert max(map(len, screen.rows)) <= 12
    assert 0 <= screen.row < 5
    assert 0 <= screen.column <= 12
    assert screen.above == []
