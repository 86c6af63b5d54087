import re

import pytest

from gateway.web.markup.markdown import Markdown

BARS = '{"type": "bar", "title": "Sales & <b>", "labels": ["EU", "US"], "series": {"Q2": [410, -80.5], "Q3": [0, 530]}}'


def drawn(language: str, source: str) -> str:
    return str(Markdown().html(f"```{language}\n{source}\n```"))


def test_bars_stand_on_zero_with_their_numbers_beside_them() -> None:
    html = drawn("chart", BARS)
    assert 'aria-label="Bar chart: Sales &amp; &lt;b&gt;"' in html
    zero = re.search(r'class="axis" d="M52 ([\d.]+)H', html)
    bars = re.findall(r'<rect class="(s\d)" x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', html)
    assert zero is not None
    assert [kind for kind, *_ in bars] == ["s0", "s0", "s1", "s1"]
    (up, down, none, _) = [(float(y), float(height)) for _, y, height in bars]
    assert sum(up) == pytest.approx(float(zero[1]), abs=0.2)
    assert (down[0], none[1]) == (pytest.approx(float(zero[1]), abs=0.2), 0)
    assert "<title>US, Q2: -80.5</title>" in html
    assert '<td>EU</td><td class="right">410</td>' in html


def test_lines_join_their_points_and_a_pie_shows_shares() -> None:
    line = drawn("chart", '{"type": "line", "labels": ["a", "b", "c"], "series": {"x": [1, 2, 1500]}}')
    assert (line.count("<circle"), len(re.findall(r'points="(\S+ \S+ \S+)"', line))) == (3, 1)
    assert ">1.5k</text>" in line
    pie = drawn("chart", '{"type": "pie", "labels": ["a", "b"], "series": {"x": [3, 1]}}')
    assert "</span>a: 75%</li>" in pie
    assert re.findall(r'dasharray="([\d.]+) 1" stroke-dashoffset="([-\d.]+)"', pie) == [
        ("0.75", "0"),
        ("0.25", "-0.75"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        "{",
        '{"type": "bar", "labels": ["a"], "series": {"x": [1, 2]}}',
        '{"type": "bar", "labels": ["a"], "series": {"x": [NaN]}}',
        '{"type": "bar", "labels": ["a"], "series": {"x": [1e300]}}',
        '{"type": "bar", "labels": ["a"], "series": {}}',
        '{"type": "bar", "labels": ["a"], "series": {"x": [1]}, "onload": "alert(1)"}',
        '{"type": "pie", "labels": ["a", "b"], "series": {"x": [1, -1]}}',
        '{"type": "pie", "labels": ["a"], "series": {"x": [0]}}',
        '{"type": "radar", "labels": ["a"], "series": {"x": [1]}}',
    ],
)
def test_a_bad_form_stays_code(source: str) -> None:
    html = drawn("chart", source)
    assert "<svg" not in html
    assert '<figure class="code">' in html


def test_an_unfinished_chart_is_not_drawn() -> None:
    assert "<svg" not in Markdown().html(f"```chart\n{BARS}")


def test_csv_is_a_table_and_what_is_none_stays_code() -> None:
    html = drawn("csv", 'Name;Size\n"a;b";-1,5\nc;12')
    assert '<th class="right"><button type="button" data-sort="">Size</button></th>' in html
    assert '<td>a;b</td><td class="right">-1,5</td>' in html
    for text in ("a,b", "a\n1", "a,b\n1", 'a,b\n"1,2', "a,b\n" + "1,2\n" * 1_001):
        assert "<table" not in drawn("csv", text)


def test_footnotes_are_below_and_details_folded() -> None:
    html = Markdown().html(
        "One[^n].\n\n<details><summary>More *x*</summary>\n\n- a\n\n</details>\n\nEnd\n\n[^n]: The note."
    )
    assert "One<sup>1</sup>." in html
    assert '<ol class="footnotes-list">\n<li class=""><p>The note.</p>' in html
    assert "<details><summary><strong>More <em>x</em></strong></summary><ul>" in html
    assert html.index("</details>") < html.index("End")
    assert "<details>" not in Markdown().html("`<details>` and <details> alone")
