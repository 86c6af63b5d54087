"""The screen Agents over real HTTP: files shown, checked, saved and tried; the owner's only."""

import re

from gateway.domain.principals import Label
from tests.web.conftest import BEARER, Web
from tests.web.test_tasks import ASK, agent

GOOD = "---\nname: Poet\ndescription: writes poems\n---\nYou rhyme."
BAD = GOOD.replace("description: writes poems\n", "")


async def sha256(web: Web, slug: str) -> str:
    async with web.sign_in() as browser:
        shown = (await browser.get(f"/agents/{slug}/details")).text
    [found] = set(re.findall(r'name="sha256" value="([0-9a-f]{64})"', shown))
    return str(found)


async def prompt(web: Web, slug: str) -> str:
    found = await web.backend.trees.control.trees.agents.get(slug)
    assert found is not None
    return found.prompt


async def test_an_agent_is_made_edited_and_deleted(web: Web) -> None:
    async with web.sign_in() as browser:
        assert "The agent that you chat with" in (await browser.get("/agents")).text
        assert (await browser.post("/agents", data={"name": "poet", "content": GOOD})).status_code == 204
        again = await browser.post("/agents", data={"name": "poet", "content": GOOD})
        assert "exists already" in again.json()["error"]["message"]
        assert "writes poems" in (await browser.get("/agents")).text
        before = {"sha256": await sha256(web, "poet")}
        saved = await browser.post("/agents/poet", data=before | {"content": GOOD.replace("rhyme", "sing")})
        assert saved.status_code == 204
        assert await prompt(web, "poet") == "You sing."
        stale = await browser.post("/agents/poet", data=before | {"content": GOOD})
        assert (stale.status_code, stale.json()["error"]["code"]) == (409, "changed")
        assert (await browser.post("/agents/poet/remove")).status_code == 204
        assert (await browser.get("/agents/poet/details")).status_code == 404


async def test_the_form_offers_choices_writes_the_file_and_keeps_what_it_does_not_have(web: Web) -> None:
    chosen = {"title": 'Poet: "P"', "description": "writes\npoems", "prompt": "You rhyme.", "budget": ""}
    async with web.sign_in() as browser:
        offered = (await browser.get("/agents/form")).text
        assert '<input type="checkbox" name="tools" value="web_fetch">' in offered or 'value="bash"' in offered
        form = chosen | {"name": "poet", "tools": ["bash", "read_file"], "model": "openai/x"}
        assert (await browser.post("/agents", data=form)).status_code == 204
        path = web.path.workspace / ".agents" / "agents" / "poet.md"
        path.write_text(path.read_text().replace("model:", "temperature: 0.1\nmodel:"))
        shown = (await browser.get("/agents/poet/details")).text
        assert 'name="tools" value="bash" checked' in shown
        assert 'value="tools" checked' not in shown
        form = chosen | {"sha256": await sha256(web, "poet"), "budget": "0.3", "prompt": "You sing.", "all_of": "tools"}
        assert (await browser.post("/agents/poet", data=form)).status_code == 204
        refused = await browser.post("/agents/poet", data={"title": "x", "sha256": await sha256(web, "poet")})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_agent")
    found = await web.backend.trees.control.trees.agents.get("poet")
    assert found is not None
    assert (found.head.name, found.head.temperature, found.head.budget) == ('Poet: "P"', 0.1, 0.3)
    assert (found.head.tools, found.head.skills, found.model, found.prompt) == (None, (), None, "You sing.")


async def test_no_tools_and_all_tools_are_kept_apart(web: Web) -> None:
    none = GOOD.replace("writes poems", "writes poems\ntools: []")
    async with web.sign_in() as browser:
        await browser.post("/agents", data={"name": "poet", "content": none})
        shown = (await browser.get("/agents/poet/details")).text
        assert 'name="all_of" value="tools">' in shown
        assert 'name="all_of" value="skills" checked>' in shown
        form = {"title": "Poet", "description": "writes", "prompt": "You rhyme.", "all_of": "skills"}
        form["sha256"] = await sha256(web, "poet")
        assert (await browser.post("/agents/poet", data=form)).status_code == 204
    found = await web.backend.trees.control.trees.agents.get("poet")
    assert found is not None
    assert (found.head.tools, found.head.skills) == ((), None)


async def test_a_wrong_text_is_refused_and_a_wrong_file_leaves_the_last_good_one(web: Web) -> None:
    async with web.sign_in() as browser:
        await browser.post("/agents", data={"name": "poet", "content": GOOD})
        refused = await browser.post("/agents/poet", data={"sha256": await sha256(web, "poet"), "content": BAD})
        assert refused.status_code == 400
        assert "Not saved: description: is required" in refused.json()["error"]["message"]
        for name in ("main", "../poet", "Poet!"):
            assert (await browser.post("/agents", data={"name": name, "content": GOOD})).status_code == 400
        (web.path.workspace / ".agents" / "agents" / "poet.md").write_text(BAD)
        shown = (await browser.get("/agents")).text
        assert "so the last good version is used: description: is required" in shown
        assert await prompt(web, "poet") == "You rhyme."
        assert "name: Poet" in (await browser.get("/agents/poet/details")).text


async def test_an_agent_is_tried_in_place(web: Web) -> None:
    agent(web, "poet")
    async with web.sign_in() as browser:
        web.model.says("<b>Roses</b>")
        shown = (await browser.post("/agents/poet/test", data={"input": "a poem"})).text
        assert "&lt;b&gt;Roses&lt;/b&gt;" in shown
        assert "completed" in shown
        assert "You are the poet." in str(web.model.prompts[-1])
        web.model.says(ASK)
        shown = (await browser.post("/agents/poet/test", data={"input": "another"})).text
        assert "A1 asks you" in shown
        missing = await browser.post("/agents/nobody/test", data={"input": "a poem"})
        assert "there are main, poet" in missing.json()["error"]["message"]


async def test_a_text_that_is_not_the_owners_stays_so(web: Web) -> None:
    path = ".agents/agents/poet.md"
    await web.backend.files.workspace.write(path, GOOD, Label.UNTRUSTED, "text/markdown", unlocked=True)
    async with web.sign_in() as browser:
        assert "not verified" in (await browser.get("/agents")).text
        form = {"sha256": await sha256(web, "poet"), "content": GOOD.replace("rhyme", "sing")}
        assert (await browser.post("/agents/poet", data=form)).status_code == 204
        assert "not verified" in (await browser.get("/agents")).text


async def test_only_the_owners_browser_sees_or_changes_an_agent(web: Web) -> None:
    agent(web, "poet")
    assert (await web.client.get("/agents")).headers["location"] == "/login"
    for path in ("/agents/events", "/agents/poet/details"):
        assert (await web.client.get(path, headers=BEARER)).status_code == 401
    for path in ("/agents", "/agents/poet", "/agents/poet/remove", "/agents/poet/test"):
        assert (await web.client.post(path, headers={**BEARER, "Origin": web.url})).status_code == 401
    assert await prompt(web, "poet") == "You are the poet."
