"""What programs write into memory names secrets and holds none."""

import json
from typing import Any

from tests.web.api.test_mcp import call, over_http
from tests.web.conftest import BEARER, Web
from tests.web.test_log import SESSION
from tests.web.test_memory_api import agent, remember

VALUE, SHOWN = "hush-hush-hush", "${secret:KEY}"
TABLES = "select text from memories union all select text from messages"


async def knows(web: Web) -> None:
    await web.path.secrets.vault.put(web.backend.owner.id, "KEY", VALUE, shared=True)
    await web.path.secrets.look()


async def stored(web: Web) -> list[str]:
    texts = [text for (text,) in await web.path.rows(TABLES)]
    assert VALUE not in json.dumps(texts)
    return texts


async def test_a_memory_written_and_edited_by_a_program(web: Web) -> None:
    await knows(web)
    token = await agent(web, "a")
    memory = await remember(web, token, f"The key is {VALUE}", tags=[VALUE])
    assert memory["text"] == f"The key is {SHOWN}"
    assert VALUE not in str(memory["tags"])
    change: dict[str, Any] = {"text": f"It was {VALUE}"}
    edited = await web.client.patch(f"/api/memory/{memory['id']}", json=change, headers=token)
    assert edited.json()["text"] == f"It was {SHOWN}"
    assert f"It was {SHOWN}" in await stored(web)


async def test_a_memory_written_over_the_model_context_protocol(web: Web) -> None:
    await knows(web)
    async with over_http(web, BEARER) as session:
        failed, _ = await call(session, "remember", content=f"The key is {VALUE}", category="fact")
    assert not failed
    assert await stored(web) == [f"The key is {SHOWN}"]


async def test_a_log_of_another_agent(web: Web) -> None:
    await knows(web)
    texts = [f"Remember that the key is {VALUE}", f"Noted: {VALUE}"]
    messages = [{**m, "text": text} for m, text in zip(SESSION["messages"], texts, strict=False)]
    asked = {"sessions": [{**SESSION, "messages": messages}], "remember": True}
    assert (await web.client.post("/api/log", json=asked, headers=await agent(web, "a"))).status_code == 200
    assert f"Noted: {SHOWN}" in str(await stored(web))


async def test_what_the_owner_writes_on_the_page_of_memory(web: Web) -> None:
    await knows(web)
    memory = await remember(web, BEARER, "The key is long")
    form = {"text": f"The key is {VALUE}", "category": "fact", "importance": "0.5"}
    async with web.sign_in() as browser:
        assert (await browser.post(f"/memory/{memory['id']}", data=form)).status_code == 200
    assert f"The key is {SHOWN}" in await stored(web)
