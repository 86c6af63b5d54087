import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.web.live.sse import Patch, difference, to_json

pages = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["1", "2"]), max_size=8).flatmap(
    lambda page: st.permutations(list(page.items())).map(dict)
)


def apply(page: dict[str, str], patches: list[Patch]) -> dict[str, str]:
    """What `ui.js` does, on ids that are their own HTML's first letter."""
    rows = list(page.items())
    for patch in patches:
        keys = [key for key, _ in rows]
        assert len(set(keys)) == len(keys)
        match patch:
            case ("replace", id, html):
                rows[keys.index(id)] = (html[0], html)
            case ("insert", after, html):
                rows.insert(keys.index(after) + 1 if after else 0, (html[0], html))
            case ("remove", id, _):
                del rows[keys.index(id)]
    return dict(rows)


@given(pages, pages)
def test_the_difference_turns_one_page_into_the_other(before: dict[str, str], after: dict[str, str]):
    before = {key: key + html for key, html in before.items()}
    after = {key: key + html for key, html in after.items()}
    assert list(apply(before, difference(before, after)).items()) == list(after.items())


def test_nothing_changes_nothing():
    assert difference({"a": "x", "b": "y"}, {"a": "x", "b": "y"}) == []


def test_a_finished_answer_takes_the_place_of_the_one_being_written():
    assert difference({"m1": "q", "live": "…"}, {"m1": "q", "m2": "a"}) == [Patch("replace", "live", "a")]


def test_patches_are_lists_for_the_page():
    patches = [Patch("insert", "", "2"), Patch("remove", "b"), Patch("running", True)]
    assert json.loads(to_json(patches)) == [["insert", "", "2"], ["remove", "b", ""], ["running", True, ""]]
