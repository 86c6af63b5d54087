import pytest

from gateway.workspace.instructions import with_zone, zone_in
from gateway.workspace.template import TEMPLATE


@pytest.mark.parametrize(
    "line",
    [
        "- Time zone: Europe/Berlin",
        "Timezone: Europe/Berlin.",
        "* **Time zone:** Europe/Berlin",
        "- **time-zone**: `Europe/Berlin`",
        "TIME ZONE = Europe/Berlin",
        "  - Time_Zone: _Europe/Berlin_ (CET, in summer CEST)",
        "> Time zone: Europe/Berlin, since May",
        "- Time zone: Berlin (Europe/Berlin)",
    ],
)
def test_the_zone_is_read_however_the_line_is_written(line: str) -> None:
    assert zone_in(f"# About the user\r\n\r\n- Name: Ada\r\n{line}\r\n- Language: German\r\n") == "Europe/Berlin"


@pytest.mark.parametrize(
    "line",
    ["- Time zone:", "- Time zone: Berlin", "- Time zone: UTC+2", "- Time zone: not known, maybe UTC", "Europe/Berlin"],
)
def test_what_is_no_iana_name_is_not_guessed(line: str) -> None:
    assert zone_in(f"{line}\n- Work: Tokyo Asia/Tokyo\n") is None


def test_a_short_name_counts_if_it_is_one() -> None:
    assert zone_in("- Time zone: CET\n") == "CET"


def test_the_first_line_that_has_one_counts() -> None:
    assert zone_in("- Time zone:\n- Time zone: Asia/Tokyo\n- Time zone: UTC\n") == "Asia/Tokyo"


def test_the_template_has_the_line_and_says_none_yet() -> None:
    text = (TEMPLATE / "USER.md").read_text(encoding="utf-8")

    assert zone_in(text) is None
    assert zone_in(text.replace("Time zone:", "Time zone: Asia/Kathmandu")) == "Asia/Kathmandu"


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("- Name: Ada\n- Time zone:\n- Work:\n", "- Name: Ada\n- Time zone: Europe/Berlin\n- Work:\n"),
        ("* **Time zone:** \r\n* Work:\r\n", "* **Time zone:** Europe/Berlin \r\n* Work:\r\n"),
        ("- Time zone: Berlin\n", "- Time zone: Berlin (Europe/Berlin)\n"),
        ("- Time zone: UTC+2, I think\n", "- Time zone: UTC+2, I think (Europe/Berlin)\n"),
        ("- Time zone: Asia/Tokyo (JST)\n- Work:\n", "- Time zone: Europe/Berlin (JST)\n- Work:\n"),
        ("- Time zone:\n- Time zone: Asia/Tokyo\n", "- Time zone:\n- Time zone: Europe/Berlin\n"),
        ("- Name: Ada", "- Name: Ada\n\n- Time zone: Europe/Berlin\n"),
    ],
)
def test_a_zone_is_noted_where_it_belongs_and_nothing_is_lost(user: str, expected: str) -> None:
    assert with_zone(user, "Europe/Berlin") == expected
    assert zone_in(expected) == "Europe/Berlin"


def test_a_short_name_that_would_not_be_read_beside_others_gets_a_line_of_its_own() -> None:
    text = with_zone("- Time zone: Berlin\n", "UTC")

    assert "- Time zone: Berlin\n" in text
    assert zone_in(text) == "UTC"
