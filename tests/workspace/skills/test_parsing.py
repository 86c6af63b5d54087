from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref import validate

from gateway.workspace.skills.folder import BadSkill
from gateway.workspace.skills.parsing import NO_VERSION, parse, skill_of
from tests.workspace.skills.writing import one_line, skill_md


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
        ("---\nname: [\n---\n", "not valid YAML"),
        (f"---\n{'[' * 5_000}\n---\n", "not valid YAML"),
        ("---\na: &x [1]\nb: *x\n---\n", "aliases or tags"),
        ("---\na: !!python/object/apply:os.system [ls]\n---\n", "aliases or tags"),
        (f"---\nname: {'a' * 20_000}\n---\n", "longer than 16 kB"),
        (skill_md("PDF"), "name must be"),
        (skill_md("a--b"), "name must be"),
        (skill_md("../x"), "name must be"),
        (skill_md("a" * 65), "name must be"),
        (skill_md("[x]"), "name must be"),
        (skill_md(description="x" * 1_025), "description must be"),
        (skill_md(description="''"), "description must be"),
        (skill_md(more=f"compatibility: {'x' * 501}\n"), "compatibility must be"),
    ],
)
def test_what_is_no_skill_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(BadSkill, match=told) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


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
def test_the_verdict_is_that_of_the_reference_checker(fields: dict[str, str]) -> None:
    text = "---\n" + "".join(f"{key}: {value}\n" for key, value in fields.items()) + "---\nDo it.\n"
    with TemporaryDirectory() as home:
        folder = Path(home) / fields["name"].lower()
        folder.mkdir()
        (folder / "SKILL.md").write_text(text)
        problems = validate(folder)
    try:
        parse(text)
    except BadSkill:
        assert problems
    else:
        assert problems == []
