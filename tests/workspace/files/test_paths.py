import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workspace.files.paths import MAX_PATH_BYTES, WorkspaceError, WorkspacePath


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        (".", ()),
        ("./", ()),
        ("notes/ideas.md", ("notes", "ideas.md")),
        ("./notes//ideas.md/", ("notes", "ideas.md")),
        (".agents/AGENTS.md", (".agents", "AGENTS.md")),
        ("~backup", ("~backup",)),
        ("...", ("...",)),
        ("Cafe\u0301.md", ("Café.md",)),
        ("👩\u200d💻.md", ("👩\u200d💻.md",)),
    ],
)
def test_a_clean_path_is_split_into_its_parts(text: str, parts: tuple[str, ...]) -> None:
    assert WorkspacePath.parse(text).parts == parts


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("/etc/passwd", "notes/ideas.md"),
        ("~/x", "notes/ideas.md"),
        ("..", "notes/ideas.md"),
        ("a/../../b", "notes/ideas.md"),
        ("a\\..\\b", "separate folders with /"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\u202egpj.exe", "invisible"),
        ("a\ud800", "invisible"),
        ("x" * 256, "255 bytes"),
        ("/".join(["y" * 200] * 6), "1024 bytes"),
    ],
)
def test_a_path_that_could_mislead_is_refused_with_what_works(text: str, hint: str) -> None:
    with pytest.raises(WorkspaceError, match=hint) as caught:
        WorkspacePath.parse(text)
    assert caught.value.code == "bad_path"


@given(st.text(alphabet=st.one_of(st.sampled_from("./\\~ab\0é\u0301"), st.characters()), max_size=60))
def test_whatever_is_accepted_stays_below_the_root(text: str) -> None:
    try:
        path = WorkspacePath.parse(text)
    except WorkspaceError:
        return
    assert not {"..", ".", ""} & set(path.parts)
    assert not any("/" in part or "\\" in part or "\0" in part for part in path.parts)
    assert len(str(path).encode()) <= MAX_PATH_BYTES
    assert unicodedata.is_normalized("NFC", str(path))
    assert WorkspacePath.parse(str(path)) == path


def test_the_gateways_own_folders_are_read_only_however_they_are_written() -> None:
    assert WorkspacePath.parse("sessions/a.md").read_only
    assert WorkspacePath.parse("./Memory").read_only
    assert not WorkspacePath.parse("notes/sessions/a.md").read_only
    assert not WorkspacePath.parse("").read_only


def test_a_path_knows_its_name_and_parents() -> None:
    path = WorkspacePath.parse("a/b/c.md")
    assert (path.name, path.parents, str(path)) == ("c.md", ("a", "b"), "a/b/c.md")
    assert (WorkspacePath(()).name, str(WorkspacePath(()))) == ("", ".")
