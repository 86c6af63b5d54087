import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workspace.files.paths import WorkspacePath
from gateway.workspace.files.uploads import MAX_UPLOAD_NAME_BYTES, is_taken, name_candidates, safe_name


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("Müllers  Rechnung (März).pdf", "Müllers Rechnung (März).pdf"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("a/b/", "b"),
        ("a\x00b\nc.txt", "a b c.txt"),
        ("invoice\u202efdp.exe", "invoice fdp.exe"),
        ("\u200b\u200breport.pdf", "report.pdf"),
        (".bashrc", "bashrc"),
        (".writing-12", "writing-12"),
        ("CON<>:|?*.txt", "CON______.txt"),
        ("[file x: y]", "_file x_ y_"),
        ("...", "file"),
        ("", "file"),
        ("报告.docx", "报告.docx"),
        ("e\u0301.txt", "\u00e9.txt"),
    ],
)
def test_a_name_stays_readable_and_does_no_harm(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_file_without_a_name_is_named_after_its_type() -> None:
    assert safe_name("", "application/pdf") == "file.pdf"


def test_a_long_name_is_cut_before_its_extension() -> None:
    name = safe_name("é" * 300 + ".pdf")
    assert name.endswith("é.pdf")
    assert len(name.encode()) <= MAX_UPLOAD_NAME_BYTES


@given(st.text(max_size=400), st.text(max_size=40))
def test_whatever_it_is_called_the_workspace_takes_it(name: str, mime: str) -> None:
    safe = safe_name(name, mime)
    assert WorkspacePath.parse(f"uploads/2026-11-21/{safe}.pages/001.txt").parts[2] == f"{safe}.pages"
    assert len(safe.encode()) <= MAX_UPLOAD_NAME_BYTES
    assert not safe.startswith(".")
    assert safe_name(safe, mime) == safe


def test_a_name_that_is_taken_gets_a_number() -> None:
    names = name_candidates("a.tar.gz")
    assert [next(names), next(names), next(names)] == ["a.tar.gz", "a.tar-2.gz", "a.tar-3.gz"]


@pytest.mark.parametrize(
    ("name", "there", "free"),
    [
        ("a.pdf", set(), True),
        ("a.pdf", {"a.pdf"}, False),
        ("a.pdf", {"a.pdf.txt"}, False),
        ("a.pdf", {"a.pdf.pages"}, False),
        ("a.pdf.txt", {"a.pdf"}, False),
        ("a.pdf.pages", {"a.pdf"}, False),
        ("a.txt", {"b.txt"}, True),
    ],
)
def test_no_file_lies_where_the_text_of_another_does(name: str, there: set[str], free: bool) -> None:
    assert is_taken(name, there) is not free
