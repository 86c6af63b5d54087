import json
import threading
from collections.abc import Sequence

from gateway.domain.health import Finding, FindingLevel
from tests.web.conftest import BEARER, Running

FOUND = [
    ("python", Finding(FindingLevel.OK, "Python 3.12")),
    ("model", Finding(FindingLevel.WARN, "no model is connected", "set a provider's key")),
    ("keys", Finding(FindingLevel.FAIL, "<b>other</b> users read claw_0123456789abcdef0123", "chmod 600 keys")),
]


async def test_the_page_waits_for_no_check_and_shows_the_worst_first(running: Running):
    let_go = threading.Event()

    def findings() -> Sequence[tuple[str, Finding]]:
        let_go.wait(30)
        return FOUND

    gateway = await running.start(findings=findings)
    async with gateway.web.sign_in() as browser:
        assert "Checking…" in (await browser.get("/checks")).text
        let_go.set()
        async with browser.stream("GET", "/checks/events") as answer:
            line = await anext(line async for line in answer.aiter_lines() if line.startswith("data: "))
    [[what, where, html]] = json.loads(line[6:])
    assert (what, where) == ("fill", "board")
    assert "1 failed, 1 warning, 1 OK." in html
    assert html.index("chmod 600 keys") < html.index("set a provider") < html.index("Python 3.12")
    assert "&lt;b&gt;other&lt;/b&gt; users read [hidden]" in html
    await gateway.stop()


async def test_a_higher_version_is_installed_by_the_owners_browser_alone(running: Running):
    began = list[bool]()
    newer = [("update", Finding(FindingLevel.WARN, "version 9.0.0 is available", "`supaclaw update` installs it"))]
    gateway = await running.start(findings=lambda: newer, update=lambda: began.append(True))
    by_token = await gateway.web.client.post("/checks/update", headers=BEARER)
    assert (by_token.status_code, began) == (401, [])
    async with gateway.web.sign_in() as browser:
        async with browser.stream("GET", "/checks/events") as answer:
            line = await anext(line async for line in answer.aiter_lines() if line.startswith("data: "))
        assert (await browser.post("/checks/update")).status_code == 204
    assert 'action="/checks/update"' in json.loads(line[6:])[0][2]
    assert began == [True]
    await gateway.stop()
