import io
import os
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref import validate

from gateway.workspace.skills import folder
from gateway.workspace.skills.folder import checked, digest, pack, skill_of, unpack
from gateway.workspace.skills.parsing import NO_VERSION, BadSkill, parse
from tests.workspace.skills.writing import one_line, put, skill_md


def zipped(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def linked(name: str, target: str) -> bytes:
    """An archive with a symbolic link."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, target)
    return buffer.getvalue()


def test_a_skill_is_read_with_all_its_files(tmp_path: Path) -> None:
    home = put(tmp_path, "pdf", text="x", note="y")
    (home / "scripts").mkdir()
    (home / "scripts" / "a.py").write_bytes(b"z")
    assert folder.read(tmp_path, "pdf") == {"SKILL.md": b"x", "note": b"y", "scripts/a.py": b"z"}
    assert folder.names(tmp_path) == ["pdf"]


def test_files_beside_skills_are_none(tmp_path: Path) -> None:
    put(tmp_path, "pdf")
    (tmp_path / ".agents/skills/README.md").touch()
    (tmp_path / ".agents/skills/.git").mkdir()
    assert folder.names(tmp_path) == ["pdf"]


def test_a_stamp_tells_of_every_write(tmp_path: Path) -> None:
    home = put(tmp_path, "pdf", text="one")
    before = folder.stamp(tmp_path, "pdf")
    assert folder.stamp(tmp_path, "pdf") == before
    times = os.stat(home / "SKILL.md")
    (home / "SKILL.md").write_text("two")
    os.utime(home / "SKILL.md", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert folder.stamp(tmp_path, "pdf") != before


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "top"])
def test_links_and_devices_are_refused(tmp_path: Path, kind: str) -> None:
    home = put(tmp_path, "pdf")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("key")
    if kind == "file":
        (home / "a").symlink_to(tmp_path / "secret/key")
    elif kind == "folder":
        (home / "a").symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(home / "a")
    else:
        home.rename(tmp_path / "elsewhere")
        home.symlink_to(tmp_path / "elsewhere")
    with pytest.raises((BadSkill, OSError)):
        folder.read(tmp_path, "pdf")


def test_a_link_in_the_place_of_a_skill_is_removed_and_nothing_behind_it(tmp_path: Path) -> None:
    home = put(tmp_path, "pdf")
    home.rename(tmp_path / "elsewhere")
    home.symlink_to(tmp_path / "elsewhere")
    folder.remove(tmp_path, "pdf")
    assert not home.is_symlink()
    assert (tmp_path / "elsewhere/SKILL.md").exists()
    folder.remove(tmp_path, "pdf")


def test_many_files_and_deep_folders_are_refused(tmp_path: Path) -> None:
    home = put(tmp_path, "many")
    for number in range(1_000):
        (home / f"{number}").touch()
    deep = put(tmp_path, "deep").joinpath(*"abcdefghij")
    deep.mkdir(parents=True)
    for name in ("many", "deep"):
        with pytest.raises(BadSkill, match="more than"):
            folder.read(tmp_path, name)
        with pytest.raises(BadSkill, match="more than"):
            folder.stamp(tmp_path, name)


def test_huge_files_are_refused(tmp_path: Path) -> None:
    home = put(tmp_path, "big")
    with (home / "big").open("wb") as file:
        file.truncate(10 * 2**30)
    with pytest.raises(BadSkill, match="larger than 8 MB"):
        folder.read(tmp_path, "big")


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(BadSkill, match="at most 300 files and 16 MB; this one has more"):
        unpack(zipped({f"{n}": bytes(900_000) for n in range(60)}))
    with pytest.raises(BadSkill, match="larger than 8 MB"):
        unpack(zipped({"a": bytes(9 * 2**20)}))


def test_a_bomb_that_lies_about_its_size_is_refused() -> None:
    data = zipped({"a": bytes(3 * 2**20)})
    size = (3 * 2**20).to_bytes(4, "little")
    with pytest.raises(BadSkill):
        unpack(data.replace(size, (10).to_bytes(4, "little")))


def test_ten_thousand_files_are_refused() -> None:
    with pytest.raises(BadSkill, match="at most 300 files"):
        unpack(zipped({f"{n}": b"" for n in range(10_000)}))


@pytest.mark.parametrize(
    "name",
    [".", "../x", "a/../../x", "/etc/x", "a\\..\\x", "a//b", "./a", "a\u202eb", "~/x", "a/" * 9 + "x", "x" * 300],
)
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(BadSkill):
        checked([(name, b"")])


def test_links_in_archives_are_refused() -> None:
    with pytest.raises(BadSkill, match="a link or a device"):
        unpack(linked("a", "/etc/passwd"))


def test_names_that_are_the_same_somewhere_are_refused() -> None:
    with pytest.raises(BadSkill, match="as the same"):
        checked([("SKILL.md", b"harmless"), ("skill.MD", b"evil")])


@pytest.mark.parametrize(
    "data", [b"", b"PK\x05\x06", b"hello", zipped({"a": b"b" * 100})[:-30]], ids=["empty", "end", "text", "cut"]
)
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    with pytest.raises(BadSkill):
        unpack(data)


_PATHS = st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5}){0,3}", fullmatch=True)


@given(st.dictionaries(_PATHS, st.binary(max_size=50), max_size=8), st.binary(min_size=1, max_size=9))
def test_a_packed_skill_is_the_same_again_and_its_hash_covers_all_of_it(files: dict[str, bytes], more: bytes) -> None:
    assert dict(unpack(pack(files))) == files
    assert pack(files) == pack(dict(reversed(files.items())))
    for path in files:
        assert digest({**files, path: files[path] + more}) != digest(files)
        moved = {name: data for name, data in files.items() if name != path}
        assert digest(moved) != digest(files)
        assert digest({**moved, f"{path}x": files[path]}) != digest(files)


@given(st.text(min_size=1, max_size=60))
def test_whatever_is_let_through_stays_below_the_folder(name: str) -> None:
    try:
        files = checked([(name, b"x")])
    except BadSkill as error:
        one_line(error)
        return
    [path] = files
    assert os.path.normpath(os.path.join("/skill", path)) == f"/skill/{path}"


@given(st.binary(max_size=300))
def test_any_bytes_are_an_archive_or_are_refused(data: bytes) -> None:
    for each in (data, zipped({"a": b"b"})[:40] + data):
        try:
            unpack(each)
        except BadSkill as error:
            one_line(error)


def test_a_head_and_its_instructions() -> None:
    text = skill_md(more="version: 2.0\nlicense: MIT\nmetadata:\n  author: Ada\n", body="# PDF\n\n---\n\nDo it.")
    skill = parse(text)
    assert (skill.name, skill.description, skill.version) == ("pdf", "Reads PDF forms.", "2.0")
    assert skill.about == (("license", "MIT"), ("metadata.author", "Ada"))
    assert skill.body == "# PDF\n\n---\n\nDo it."


@pytest.mark.parametrize(
    ("more", "version"),
    [
        ("", NO_VERSION),
        ("version: 1.10\n", "1.10"),
        ("metadata:\n  version: '3'\n", "3"),
        ("version: ''\n", NO_VERSION),
    ],
)
def test_the_version_is_text_and_1_0_0_where_the_file_has_none(more: str, version: str) -> None:
    assert parse(skill_md(more=more)).version == version


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no head", "must begin with front matter"),
        ("---\nname: pdf\n", "must begin with front matter"),
        ("---\n- a\n---\n", "a list of fields"),
        ("---\nname: [\n---\n", "name must be .* write a line such as: name"),
        ("---\nname: pdf\ndescription:Reads\n---\n", "not valid YAML in line 3: .*; write key: value"),
        ("---\nname: pdf\ndescription: a\nname: b\n---\n", "has name more than once; keep one line of it"),
        ("\n\n---\nname: pdf\n}\n---\n", "not valid YAML in line 5"),
        (f"---\n{'[' * 5_000}\n---\n", "not valid YAML"),
        ("---\na:\n- &x [1]\n- *x\n---\n", "aliases or tags"),
        ("---\na:\n- !!python/object/apply:os.system [ls]\n---\n", "aliases or tags"),
        (f"---\nname: {'a' * 20_000}\n---\n", "longer than 16 kB"),
        (skill_md("../x"), "name must be"),
        (skill_md("a" * 65), "name must be"),
        (skill_md("[x]"), "name must be"),
        (skill_md(description="''"), "description must be"),
        (skill_md(description="a\x80"), "delete control characters"),
    ],
)
def test_what_is_no_skill_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(BadSkill, match=told) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


def test_heads_of_other_programs_are_read_as_they_are() -> None:
    openclaw = parse('---\nslug: parcel\ndescription: Tracks.\nmetadata: {\n  "x": {"bins": ["node"]}\n}\n---\n')
    assert (openclaw.name, openclaw.about[0]) == ("parcel", ("metadata.x", "{'bins': ['node']}"))
    claude = parse(
        skill_md("PDF Merge & Split (new)", more=f"compatibility: {'x' * 900}\nallowed-tools: Read, Bash(git:*)\n")
    )
    assert (claude.name, claude.about[0]) == ("pdf-merge-split-new", ("allowed-tools", "Read, Bash(git:*)"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Use when: (1) a week ends. NOT for: diaries.", "Use when: (1) a week ends. NOT for: diaries."),
        ("Posts to #general & @ada # weekly", "Posts to #general & @ada # weekly"),
        *((f"{sign}x y", f"{sign}x y") for sign in "@&*!%?|>{}[],~-=\"'#"),
        ('[beta] it\'s "quoted"', '[beta] it\'s "quoted"'),
        ("[beta]", "[beta]"),
        ('"x" y', '"x" y'),
        ('"a: b" # a comment', "a: b"),
        ("'it''s'", "it's"),
        ("\tWrites: notes", "Writes: notes"),
        ("\tWrites notes", "Writes notes"),
        ("Writes: notes\n  and: more #x\n\n  of it", "Writes: notes and: more #x of it"),
        (">-\n  Writes: notes\n  & #more", "Writes: notes & #more"),
        ("|\n  Writes:\n    notes # kept", "Writes: notes # kept"),
        ("Writes notes\r", "Writes notes"),
        ("word " * 400, ("word " * 400).strip()),
    ],
)
def test_a_head_is_read_as_people_mean_it(written: str, meant: str) -> None:
    skill = parse(
        f"---\nname: Weekly_Notes\ndescription: {written}\nversion: 2 # a comment\nmetadata:\n\tby: @ada #1\n---\n"
    )
    assert (skill.name, skill.description, skill.version) == ("weekly-notes", meant, "2")
    assert skill.about == (("metadata.by", "@ada #1"),)


def test_fonts_fit_into_a_skill() -> None:
    assert checked([("SKILL.md", b"x"), ("one.ttf", bytes(5_500_000)), ("two.ttf", bytes(5_500_000))])


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(BadSkill, match="not UTF-8"):
        skill_of({"SKILL.md": b"---\nname: \xff\n---\n"})


def test_what_hides_in_a_description_does_not_reach_the_prompt() -> None:
    skill = parse(skill_md(description='"Reads\\nPDF\\u202e forms\\U000E0041 `x`"'))
    assert skill.description == "Reads PDF forms x"


@given(st.text(max_size=300))
def test_any_text_is_a_skill_or_is_refused(text: str) -> None:
    for each in (text, f"---\n{text}\n---\nx", skill_md(more=f"x: {text}\n")):
        try:
            skill = parse(each)
        except BadSkill as error:
            one_line(error)
        else:
            assert skill.name
            assert "\n" not in skill.description


_FIELDS = st.fixed_dictionaries(
    {"name": st.from_regex(r"[a-zA-Z0-9-]{1,70}", fullmatch=True)},
    optional={
        "description": st.from_regex(r"[a-zA-Z][a-zA-Z ]{0,1100}", fullmatch=True),
        "compatibility": st.from_regex(r"[a-zA-Z][a-zA-Z ]{0,600}", fullmatch=True),
        "license": st.from_regex(r"[a-zA-Z][a-zA-Z0-9]{0,20}", fullmatch=True),
    },
)


@given(_FIELDS)
def test_what_the_reference_checker_accepts_is_accepted(fields: dict[str, str]) -> None:
    text = "---\n" + "".join(f"{key}: {value}\n" for key, value in fields.items()) + "---\nDo it.\n"
    with TemporaryDirectory() as home:
        folder = Path(home) / fields["name"].lower()
        folder.mkdir()
        (folder / "SKILL.md").write_text(text)
        problems = validate(folder)
    try:
        skill = parse(text)
    except BadSkill:
        assert problems
    else:
        assert problems == [] or skill.name != fields["name"] or len(skill.description) > 1_024
