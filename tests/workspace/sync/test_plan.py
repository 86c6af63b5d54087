"""What is done about a path, by how it is here, in the map, and as both were before."""

import pytest

from gateway.domain.files import FileContent, SharedFile
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.sync.plan import Action, Drop, Pull, Push, Retract, Seen, excluded, plan

A, B, C, D = (FileContent(name * 64, 1) for name in "abcd")
RUNS = FileContent("a" * 64, 1, executable=True)
GONE = SharedFile(None, 7)
BESIDE = f"f.conflict-1970-01-01-{'a' * 8}.md"


def seen(content: FileContent) -> Seen:
    return Seen(content, 0)


@pytest.mark.parametrize(
    ("here", "base", "row", "done"),
    [
        (A, None, None, Push("f.md", A, 0)),
        (A, A, None, Push("f.md", A, 0)),  # the map is new
        (None, A, None, None),
        (None, None, SharedFile(A, 3), Pull("f.md", A)),
        (A, A, SharedFile(A, 3), None),
        (A, None, SharedFile(A, 3), None),
        (B, A, SharedFile(A, 3), Push("f.md", B, 3)),
        (A, A, SharedFile(B, 3), Pull("f.md", B, A)),
        (A, B, SharedFile(C, 3), Pull("f.md", C, A, BESIDE)),
        (A, None, SharedFile(C, 3), Pull("f.md", C, A, BESIDE)),
        (None, A, SharedFile(A, 3), Retract("f.md", 3)),
        (None, A, SharedFile(B, 3), Pull("f.md", B)),
        (A, A, GONE, Drop("f.md", A)),
        (B, A, GONE, Push("f.md", B, 7)),
        (B, None, GONE, Push("f.md", B, 7)),
        (None, A, GONE, None),
        (RUNS, A, SharedFile(A, 3), Push("f.md", RUNS, 3)),
        (RUNS, B, SharedFile(A, 3), Pull("f.md", A, RUNS)),  # no content is lost
    ],
)
def test_each_case(
    here: FileContent | None, base: FileContent | None, row: SharedFile | None, done: Action | None
) -> None:
    found = plan({"f.md": seen(here)} if here else {}, {"f.md": base} if base else {}, {"f.md": row} if row else {})
    assert found.actions == ((done,) if done else ())
    assert found.refused == {}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b.tar.gz", "a/b.tar.conflict-1970-01-01-aaaaaaaa.gz"),
        (".env", ".env.conflict-1970-01-01-aaaaaaaa"),
        ("Makefile", "Makefile.conflict-1970-01-01-aaaaaaaa"),
        ("é" * 120 + ".md", "é" * 90 + ".conflict-1970-01-01-aaaaaaaa.md"),
    ],
)
def test_the_name_of_what_lost(path: str, name: str) -> None:
    (action,) = plan({path: seen(A)}, {}, {path: SharedFile(B, 1)}).actions
    assert isinstance(action, Pull)
    assert action.beside == name


def test_what_a_killed_try_has_kept_already_is_not_kept_again() -> None:
    here = {"f.md": seen(A), BESIDE: seen(A)}
    assert plan(here, {}, {"f.md": SharedFile(B, 1)}).actions == (Push(BESIDE, A, 0), Pull("f.md", B, A))


def test_what_is_left_out_is_not_touched_nor_what_is_below_it() -> None:
    base, rows = {"a/b": A, "ab": A}, {"a/b": SharedFile(A, 1), "ab": SharedFile(A, 1)}
    assert plan({}, base, rows, {"a"}).actions == (Retract("ab", 1),)


@pytest.mark.parametrize(("gone", "of", "asked"), [(5, 5, False), (6, 6, True), (6, 12, False), (7, 12, True)])
def test_many_files_missing_are_asked_about(gone: int, of: int, asked: bool) -> None:
    base = {str(number): A for number in range(of)}
    rows = {path: SharedFile(A, 1) for path in base}
    here = {path: seen(A) for path in list(base)[gone:]}
    if asked:
        with pytest.raises(WorkspaceError, match=f"{gone} of {of} files"):
            plan(here, base, rows)
    assert len(plan(here, base, rows, gone_on_purpose=True).actions) == gone


def test_a_new_workspaces_file_gives_way_on_either_side() -> None:
    template = frozenset({A.sha256})
    assert plan({"f": seen(A)}, {}, {"f": SharedFile(B, 1)}, nobodys=template).actions == (Pull("f", B, A),)
    assert plan({"f": seen(B)}, {}, {"f": SharedFile(A, 1)}, nobodys=template).actions == (Push("f", B, 1),)
    assert plan({"f": seen(A)}, {}, {"f": GONE}, nobodys=template).actions == (Drop("f", A),)
    assert plan({}, {}, {"f": SharedFile(A, 1)}, nobodys=template).actions == (Pull("f", A),)


@pytest.mark.parametrize(
    "path", ["sessions/a", "Memory/b", "todo/todo.md", "a/.writing-1", ".git/x", "a/node_modules/b"]
)
def test_what_stays(path: str) -> None:
    assert excluded(tuple(path.split("/")))


@pytest.mark.parametrize("path", ["a/sessions/b", "notes/todo/a", ".agents/agents/a.md", "uploads/a", "tasks/1/2/a"])
def test_what_is_shared(path: str) -> None:
    assert not excluded(tuple(path.split("/")))
