"""Whatever is in config.json: it is a configuration, or each problem is one line."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config.load import parse
from gateway.config.model import Config
from gateway.config.problems import known_keys
from gateway.domain.errors import SupaclawError

KEYS = sorted(set(known_keys(Config)))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def problems(text: str) -> list[str]:
    try:
        parse(text, {})
    except SupaclawError as error:
        return str(error).split("\n")
    return []


@given(st.text(max_size=200) | VALUES.map(json.dumps))
def test_any_text_is_a_configuration_or_told_of_in_lines(text: str) -> None:
    assert all(line.strip() for line in problems(text))


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=5))
@example({("web", "proxies"): [False]})
def test_any_value_at_any_key_is_taken_or_told_of_by_its_key(given_values: dict[tuple[str, ...], Any]) -> None:
    raw: dict[str, Any] = {}
    for path, value in given_values.items():
        place = raw
        for name in path[:-1]:
            if not isinstance(place.setdefault(name, {}), dict):
                place[name] = {}
            place = place[name]
        place[path[-1]] = value
    for line in problems(json.dumps(raw)):
        assert line.strip()
        assert len(line) < 2_000
