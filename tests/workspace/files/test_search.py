from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import JsonObject
from gateway.workspace.files.search import MAX_BYTES, MAX_LINE, fits_glob, search_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {
        "a.md": "Tea\nno\r\ntea again",
        "notes/b.txt": "the tea",
        "notes/deep/c.md": "tea(s)",
        ".git/x": "tea",
        "node_modules/y": "tea",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text.encode())
    return tmp_path


def find(
    root: Path, pattern: str, under: str = ".", glob: str | None = None, limit: int = 50, regex: bool = False
) -> list[tuple[object, object, object]]:
    found: JsonObject = search_files(str(root), under, pattern, glob, limit, regex)
    rows = found["matches"]
    assert isinstance(rows, list)
    return [(row["path"], row["line"], row["text"]) for row in rows if isinstance(row, dict)]


def test_lines_come_with_their_numbers_in_order(root: Path) -> None:
    assert find(root, "tea") == [
        ("a.md", 1, "Tea"),
        ("a.md", 3, "tea again"),
        ("notes/b.txt", 1, "the tea"),
        ("notes/deep/c.md", 1, "tea(s)"),
    ]
    assert [path for path, _, _ in find(root, "Tea", ".", None, 50, True)] == ["a.md"]


def test_it_is_plain_text_unless_a_regex_is_asked_for(root: Path) -> None:
    assert find(root, "tea(s)") == [("notes/deep/c.md", 1, "tea(s)")]
    assert find(root, "^the|again$", ".", None, 50, True) == [
        ("a.md", 3, "tea again"),
        ("notes/b.txt", 1, "the tea"),
    ]
    with pytest.raises(OwnerMustAct, match="regular expression"):
        find(root, "(", ".", None, 50, True)


def test_folders_files_and_globs_narrow_it(root: Path) -> None:
    assert len(find(root, "tea", "notes")) == 2
    assert len(find(root, "tea", "a.md")) == 2
    assert [path for path, _, _ in find(root, "tea", ".", "*.txt")] == ["notes/b.txt"]
    assert [path for path, _, _ in find(root, "tea", ".", "notes/*.md")] == ["notes/deep/c.md"]
    assert find(root, "tea", "nowhere") == []


def test_it_is_bounded_and_says_so(root: Path) -> None:
    found = search_files(str(root), ".", "tea", None, 3, False)
    assert found["more"] is True
    assert len(found["matches"]) == 3  # type: ignore[arg-type]
    (root / "a.md").write_text("x" * 1_000 + "needle" + "y" * 1_000)
    [(_, _, text)] = find(root, "needle")
    assert "needle" in str(text)
    assert len(str(text)) == MAX_LINE


def test_binary_and_huge_files_and_links_are_skipped(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("tea secret")
    (root / "link").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "binary").write_bytes(b"tea\0")
    (root / "huge").write_bytes(b"tea" * MAX_BYTES)
    assert len(find(root, "tea")) == 4
    assert find(root, "tea", "link") == find(root, "tea", "file") == find(root, "tea", "link/secret") == []


def test_each_file_of_a_line_has_its_hash(root: Path) -> None:
    found = search_files(str(root), ".", "again", None, 9, False)
    assert list(found["files"]) == ["a.md"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("path", "glob", "fits"), [("a/b.md", "*.md", True), ("a/b.md", "a/*", True), ("a/b.md", "b/*", False)]
)
def test_a_glob_fits_the_path_or_the_name(path: str, glob: str, fits: bool) -> None:
    assert fits_glob(path, glob) is fits
