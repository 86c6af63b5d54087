"""Agent files: what they say, and what is wrong with them."""

from pathlib import Path

import pytest

from gateway.agent.work.agents import Agents
from gateway.workspace.agents import MAX_BYTES, BadAgent, adapted, parse
from gateway.workspace.files.tree import Workspace

GOOD = "---\nname: Researcher\ndescription: finds sources\n{}\n---\nYou look for sources."


def test_every_field() -> None:
    head = """provider: anthropic
model: claude
temperature: 0.2
max_tokens: 500
tools: [read_file, web_search]
skills: [plain, {name: citing, priority: 8}]
budget: 0.3
is_active: false"""
    agent = parse("researcher", GOOD.format(head).encode())
    assert agent.model == "anthropic/claude"
    assert (agent.head.temperature, agent.head.max_tokens, agent.head.budget) == (0.2, 500, 0.3)
    assert agent.head.tools == ("read_file", "web_search")
    assert agent.skills == ("citing", "plain")
    assert not agent.head.is_active
    assert agent.prompt == "You look for sources."


def test_what_is_left_out() -> None:
    agent = parse("researcher", GOOD.format("").encode())
    assert (agent.model, agent.head.tools, agent.skills, agent.head.temperature) == (None, None, None, 0.7)
    assert agent.head.is_active


@pytest.mark.parametrize(
    ("slug", "text", "why"),
    [
        ("Bad Name", GOOD.format(""), "file name"),
        ("main", GOOD.format(""), "chat with"),
        ("x", "You look.", "front matter"),
        ("x", GOOD.format("temperature: 9"), "temperature"),
        ("x", GOOD.format("secret: 1"), "secret"),
        ("x", GOOD.format("budget: -1"), "budget"),
        ("x", GOOD.format("") + "x" * MAX_BYTES, "longer"),
        ("x", "---\nname: x\ntools:\n- &a x\n- *a\n---\n", "aliases"),
    ],
)
def test_what_is_wrong(slug: str, text: str, why: str) -> None:
    with pytest.raises(BadAgent, match=why):
        parse(slug, text.encode())


def test_an_agent_of_claude_code_is_adapted_and_gets_no_more_tools_than_it_had() -> None:
    head = "name: reviewer\ndescription: Reviews: code\nmodel: sonnet\ncolor: red"
    head += "\ntools: Read, Bash(git:*), mcp__gh__find, Skill"
    agent, data, lost = adapted("Code_Reviewer", f"---\n{head}\n---\nBe strict.".encode())
    assert (agent.slug, agent.head.tools, agent.model) == ("code-reviewer", ("read_file", "mcp_gh_find"), None)
    assert (agent.head.description, agent.prompt) == ("Reviews: code", "Be strict.")
    assert lost == ["color", "model", "Bash(git:*)", "Skill"]
    assert parse("code-reviewer", data) == agent
    ours = GOOD.format("model: openai/gpt-5\ntools: [exec]\nskills: [{name: citing, priority: 8}]\nbudget: 0.2")
    again, _, lost = adapted("researcher", ours.encode())
    assert (again.head, lost) == (parse("researcher", ours.encode()).head, [])
    with pytest.raises(BadAgent, match="front matter"):
        adapted("README", b"# Agents")


async def test_a_bad_edit_keeps_the_last_good_one_and_is_told_once(tmp_path: Path) -> None:
    folder, told = tmp_path / ".agents" / "agents", list[str]()
    folder.mkdir(parents=True)
    file = folder / "researcher.md"
    file.write_text(GOOD.format(""))

    async def tell(text: str) -> None:
        told.append(text)

    agents = Agents(Workspace(tmp_path), tell)
    good = await agents.get("researcher")
    file.write_text("nothing")
    assert await agents.get("researcher") == good
    assert await agents.get("researcher") == good
    assert len(told) == 1
    assert "last good version" in told[0]
    listed = await agents.listed("researcher")
    assert listed is not None
    assert listed.problem
    file.write_text(GOOD.format("is_active: false"))
    assert await agents.get("researcher") is None
    file.unlink()
    assert [each.slug for each in await agents.list_all()] == ["main"]
