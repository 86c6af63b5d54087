import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.skills.sources import find, gather, guarded, no_fetch, places
from gateway.domain.errors import SupaclawError
from gateway.net.addresses import Rules
from gateway.workspace.skills.folder import pack
from gateway.workspace.skills.parsing import BadSkill
from tests.fakes.github import GitHub
from tests.workspace.skills.writing import one_line, skill_md

PDF, CSV = skill_md("pdf").encode(), skill_md("csv").encode()
REPO = {"README.md": b"x", "skills/pdf/SKILL.md": PDF, "skills/pdf/a/b.py": b"1", "skills/csv/SKILL.md": CSV}


@pytest.fixture
async def github() -> AsyncIterator[GitHub]:
    async with GitHub() as server:
        for ref in ("HEAD", "main", "feature/x"):
            server.archives[f"ada/many@{ref}"] = REPO
            server.archives[f"ada/one@{ref}"] = {"SKILL.md": PDF, "a/b.py": b"1"}
        server.gists["abc123"] = {"SKILL.md": PDF.decode(), "note.md": "x"}
        yield server


@pytest.mark.parametrize(
    "link",
    [
        "https://github.com/ada/one",
        "https://github.com/ada/one.git",
        "https://github.com/ada/one/tree/main",
        "https://github.com/ada/one/tree/feature/x",
        "https://github.com/ada/one/blob/main/SKILL.md",
        "https://raw.githubusercontent.com/ada/one/main/SKILL.md",
        "https://raw.githubusercontent.com/ada/one/refs/heads/main/SKILL.md",
        "https://github.com/ada/one/archive/refs/heads/main.zip",
        "https://codeload.github.com/ada/one/zip/refs/heads/main",
        "https://www.github.com/ada/many/tree/main/skills/pdf/",
        "https://github.com/ada/many/tree/feature/x/skills/pdf?tab=readme#x",
        "https://github.com/ada/many/blob/main/skills/pdf/SKILL.md",
        "https://github.com/ada/many/raw/main/skills/pdf/SKILL.md",
        "https://raw.githubusercontent.com/ada/many/feature/x/skills/pdf/SKILL.md",
        "https://skills.sh/ada/many/pdf",
        "https://skills.sh/ada/one/other-name",
    ],
)
async def test_every_form_of_a_link_leads_to_the_whole_folder(github: GitHub, link: str) -> None:
    assert await gather(link, github.fetch) == {"SKILL.md": PDF, "a/b.py": b"1"}


@pytest.mark.parametrize(
    "link",
    [
        "https://gist.github.com/ada/abc123",
        "https://gist.github.com/abc123",
        "https://gist.github.com/ada/abc123/0123456789",
        "https://gist.githubusercontent.com/ada/abc123/raw/0123456789/SKILL.md",
        "https://gist.github.com/ada/abc123/archive/main.zip",
    ],
)
async def test_gists(github: GitHub, link: str) -> None:
    assert await gather(link, github.fetch) == {"SKILL.md": PDF, "note.md": b"x"}


async def test_a_text_is_a_skill_without_other_files() -> None:
    assert await gather(PDF.decode(), no_fetch) == {"SKILL.md": PDF}


async def test_a_repository_with_several_skills_names_them(github: GitHub) -> None:
    with pytest.raises(BadSkill, match=r"2 skills at that link.*skills/csv, skills/pdf"):
        await gather("https://github.com/ada/many", github.fetch)


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("https://github.com/ada/none", "answered 404"),
        ("https://github.com/ada/many/tree/main/docs", "no SKILL.md at that link"),
        ("https://gist.github.com/ada/none", "answered 404"),
    ],
)
async def test_what_is_not_there_is_told_in_one_line(github: GitHub, link: str, told: str) -> None:
    with pytest.raises(SupaclawError, match=told) as refused:
        await gather(link, github.fetch)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "link",
    [
        "http://github.com/ada/one",
        "https://github.com.evil.example/ada/one",
        "https://evil.example/skill.zip",
        "https://ada@github.com/ada/one",
        "https://github.com:8443/ada/one",
        "https://github.com/ada",
        "https://github.com/ada/one/../../evil",
        "https://github.com/ada/one/tree/main/%2e%2e/x",
        "https://github.com/ada/one/tree/a%2fb",
        "https://127.0.0.1/ada/one",
        "https://[::1",
        "file:///etc/passwd",
        "github.com/ada/one",
        "",
    ],
)
async def test_any_other_address_is_refused_unasked(github: GitHub, link: str) -> None:
    with pytest.raises(BadSkill, match="an https GitHub link"):
        await gather(link, github.fetch)
    assert github.asked == []


async def test_what_an_index_lists_can_be_installed_by_its_link(github: GitHub) -> None:
    hits = [("ada/many", "pdf"), ("elsewhere.example", "pdf"), ("ada/many", "../x"), ("ada/many?a=b/c", "x")]
    rows = [{"source": source, "skillId": id, "name": "Reads\nPDF", "installs": 7} for source, id in hits]
    github.raw["skills.sh/api/search"] = json.dumps({"skills": rows}).encode()
    [found] = await find("pdf & more", github.fetch)
    assert found == {"name": "Reads PDF", "installs": 7, "link": "https://skills.sh/ada/many/pdf"}
    assert github.asked == ["https://skills.sh/api/search?q=pdf+%26+more&limit=20"]
    assert (await gather(str(found["link"]), github.fetch))["SKILL.md"] == PDF
    github.raw["skills.sh/api/search"] = b"<html>"
    with pytest.raises(BadSkill, match="can't be read"):
        await find("pdf", github.fetch)


async def test_an_answer_that_is_no_archive_or_no_gist(github: GitHub) -> None:
    github.raw["codeload.github.com/ada/odd/zip/HEAD"] = b"<html>"
    github.raw["api.github.com/gists/odd"] = b"[]"
    with pytest.raises(BadSkill, match="a zip archive"):
        await gather("https://github.com/ada/odd", github.fetch)
    with pytest.raises(BadSkill, match="can't be read"):
        await gather("https://gist.github.com/ada/odd", github.fetch)


async def test_a_release_without_a_folder_around_it(github: GitHub) -> None:
    github.raw["github.com/ada/one/releases/download/v1/pdf.zip"] = pack({"SKILL.md": PDF})
    assert await gather("https://github.com/ada/one/releases/download/v1/pdf.zip", github.fetch) == {"SKILL.md": PDF}


@given(st.text(max_size=100), st.lists(st.text(max_size=20), max_size=6))
def test_no_link_leads_anywhere_but_to_github(text: str, parts: list[str]) -> None:
    hosts = ("github.com", "skills.sh", "gist.github.com", "raw.githubusercontent.com", "codeload.github.com")
    for link in (text, *(f"https://{host}/{'/'.join(parts)}" for host in hosts)):
        try:
            found = places(link)
        except BadSkill as error:
            one_line(error)
            continue
        for place in found:
            assert place.url.startswith(
                ("https://codeload.github.com/", "https://api.github.com/", "https://github.com/")
            )


async def test_the_gateways_own_client_connects_to_nothing_private() -> None:
    with pytest.raises(SupaclawError, match="private network"):
        await guarded(Rules)("https://127.0.0.1/skill.zip", 100)
