import json

import pytest

from integrations.openclaw.installer.openclaw import (
    MIN_VERSION,
    Edit,
    Settings,
    all_edits,
    as_json,
    discovers_hooks,
    edited,
    flush_edits,
    hook_edits,
    parsed,
    plugin_edits,
    same,
    undone,
)
from integrations.openclaw.installer.state import DATA

JSON5 = """{
  // who "it" listens to
  $größe: +.5, hex: 0xFF, lines: 'one\\
two',
  channels: {telegram: {token: 'it\\'s // no comment', allow: ["1", /* me */ "2",],},},
  "plugins": {"allow": ["browser"], "entries": {}},
}"""


def test_json5_is_read_as_people_write_it() -> None:
    assert parsed(JSON5) == {
        "$größe": 0.5,
        "hex": 255,
        "lines": "onetwo",
        "channels": {"telegram": {"token": "it's // no comment", "allow": ["1", "2"]}},
        "plugins": {"allow": ["browser"], "entries": {}},
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{token: 'mk1x' allow: []}", "near 16"),
        ("{token: 'mk1x'", "Unclosed"),
        ("", "No JSON data"),
        ("['mk1x']", "not an object"),
        ("[" * 100_000, "nesting"),
    ],
)
def test_a_broken_file_is_told_without_its_secrets(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        parsed(text)

    assert "mk1x" not in str(error.value)


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"plugins": {}, "memory": {"search": {"enabled": True, "model": "x"}}},
        {
            "plugins": {
                "allow": ["memory-core"],
                "slots": {"memory": "memory-lancedb"},
                "entries": {"x": {"enabled": True}},
            }
        },
        {"hooks": {"internal": {"enabled": True}}, "agents": {"defaults": {"compaction": {"memoryFlush": {}}}}},
        {"plugins": {"allow": ["memory-supaclaw"]}},
    ],
)
def test_undoing_all_edits_gives_what_was_there(before: Settings) -> None:
    edits = [*plugin_edits(), *flush_edits(), *hook_edits(["boot-md"])]

    after = edited(before, edits)

    assert after != before
    assert undone(after, before, all_edits(["boot-md"], hooks=True)) == before
    assert parsed(as_json(after).decode()) == after


def test_what_somebody_changed_since_stays() -> None:
    before: Settings = {"plugins": {"allow": ["a"]}}
    after = edited(before, plugin_edits())
    after["gateway"] = {"port": 1}
    allowed = after["plugins"]
    assert isinstance(allowed, dict)
    allowed["slots"] = {"memory": "another"}

    assert undone(after, before, plugin_edits()) == {
        "plugins": {"allow": ["a"], "slots": {"memory": "another"}},
        "gateway": {"port": 1},
    }


def test_an_allow_list_is_extended_and_never_made() -> None:
    edit = Edit(("plugins", "allow"), "memory-supaclaw", member=True)

    assert edited({"plugins": {"allow": ["a"]}}, [edit, edit]) == {"plugins": {"allow": ["a", "memory-supaclaw"]}}
    assert edited({}, [edit]) == {}


def test_the_oldest_version_is_that_of_the_plugins_package() -> None:
    package = json.loads((DATA / "memory-supaclaw" / "package.json").read_text())

    assert package["openclaw"]["compat"]["minGatewayVersion"] == MIN_VERSION


def test_a_list_of_hooks_is_told_from_open_discovery() -> None:
    assert discovers_hooks({"hooks": {"internal": {"enabled": True}}})
    assert not discovers_hooks({"hooks": {"internal": {"enabled": True, "entries": {"x": {"enabled": True}}}}})
    assert not discovers_hooks({})


def test_what_is_in_the_way_is_named_and_openclaws_notes_make_no_difference() -> None:
    with pytest.raises(ValueError, match=r"plugins\.slots is not an object"):
        edited({"plugins": {"slots": "memory"}}, plugin_edits())
    assert same(json.loads('{"a": 1, "meta": {"lastTouchedVersion": "2026.9.6"}}'), {"a": 1})
