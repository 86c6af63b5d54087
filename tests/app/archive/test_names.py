import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.app.archive.names import Places, allowed, shown, stays_inside


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "workspace/../../etc/passwd",
        "workspace/./a",
        "workspace//a",
        "workspace/a/",
        "workspace",
        "workspace/a\0b",
        "database/x.sql",
        "database/a/b.copy",
        "keys/postgres.supaclaw",
        "keys/postgres.superuser",
        "keys/local-token",
        "keys/a/b",
        "logs/gateway.log",
        "manifest.json",
        "",
        "workspace/" + "x" * 5000,
    ],
)
def test_what_does_not_belong_there_is_not_allowed(name: str) -> None:
    assert not allowed(name, "file")


@pytest.mark.parametrize("name", ["workspace/a b/ü.md", "principals/1/USER.md", "config.json", "keys/journal"])
def test_files_of_the_gateway_are_allowed(name: str) -> None:
    assert allowed(name, "file")


@pytest.mark.parametrize("name", ["config.json", "keys/journal", "database/messages.copy"])
def test_only_the_trees_have_folders_and_links(name: str) -> None:
    assert not allowed(name, "link")
    assert not allowed(name, "folder")
    assert allowed("workspace/a", "link")


@pytest.mark.parametrize(
    ("name", "target", "inside"),
    [
        ("workspace/l", "a", True),
        ("workspace/l", "a/b/", True),
        ("workspace/d/l", "../a", True),
        ("workspace/d/l", "..", True),
        ("workspace/l", "..", False),
        ("workspace/d/l", "../..", False),
        ("workspace/l", "/etc/passwd", False),
        ("workspace/l", "a/../b", False),
        ("workspace/l", ".", False),
        ("workspace/l", "", False),
        ("workspace/l", "/", False),
        ("principals/1/l", "../2/USER.md", False),
        ("principals/1/d/l", "../USER.md", True),
        ("principals/l", "1", False),
    ],
)
def test_a_link_stays_in_its_own_file_root(name: str, target: str, inside: bool) -> None:
    assert stays_inside(name, target) is inside


def test_an_entry_needs_its_folder_before_it_and_comes_once() -> None:
    places = Places()
    assert places.take("workspace/a", "file")
    assert not places.take("workspace/a", "file")
    assert not places.take("workspace/d/x", "file")
    assert places.take("workspace/d", "folder")
    assert places.take("workspace/d/x", "file")
    assert places.take("workspace/l", "link")
    assert not places.take("workspace/l/x", "file"), "a link is no folder to put things into"
    assert places.take("config.json", "file")
    assert not places.take("config.json", "file")


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_two_names_are_never_shown_alike(one: bytes, other: bytes) -> None:
    names = [raw.decode("utf-8", "surrogateescape") for raw in (one, other)]
    assert (shown(names[0]) == shown(names[1])) is (one == other)
    shown(names[0]).encode()
