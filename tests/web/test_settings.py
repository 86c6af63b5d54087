import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.flow.channels.supervisor import ChannelProbes, ChannelSpec
from tests.config.editing.conftest import KEY, WRITTEN, Desk, desk
from tests.fakes.channel import FakeChannel
from tests.flow.channels.test_supervisor import Settings
from tests.web.conftest import BEARER, Running, Still, Web

__all__ = ["desk"]


@pytest.fixture
async def served(running: Running, desk: Desk) -> AsyncIterator[Web]:
    started = await running.start(editor=desk.editor)
    yield started.web
    await started.stop()


def sent(desk: Desk, values: Mapping[str, str], origin: str = "settings-form") -> dict[str, str]:
    return {"origin": origin, "stamp": desk.stamp, **values}


async def reviewed(browser: httpx.AsyncClient, data: dict[str, str]) -> dict[str, str]:
    """The same again, as the Save button of the review sends it."""
    page = await browser.post("/settings", data=data)
    assert page.status_code == 200, page.text
    return data | {"reviewed": page.text.partition('name="reviewed" value="')[2].partition('"')[0]}


async def test_the_page_has_every_key_and_no_secret(served: Web):
    linked = "update principals set identities = array['telegram:501'] where role = 'owner' returning id"
    await served.path.rows(linked)
    async with served.sign_in() as browser:
        page = (await browser.get("/settings?find=heartbeat")).text
    assert 'name="heartbeat.every"' in page
    assert 'name="channels.telegram.token" value="$env:BOT"' in page
    assert 'value="heartbeat"' in page
    assert ">A day, in US dollars <code>budgets.day_usd</code></label>" in page
    assert '<option value="Europe/Berlin">' in page
    assert "Linked: <code>telegram:501</code>" in page
    assert re.search(r'<input id="set-owner-timezone"[^>]* list="zones"', page)
    assert re.search(r'<input id="set-models-summary"[^>]* list="models"', page)
    assert "Set by <code>SUPACLAW_MODEL</code> in the environment" in page
    assert KEY not in page


async def test_a_change_is_reviewed_then_saved(served: Web, desk: Desk):
    async with served.sign_in() as browser:
        data = sent(desk, {"heartbeat.every": "1h"})
        review = (await browser.post("/settings", data=data)).text
        assert 'class="added">+' in review
        assert "applies at once" in review
        assert desk.path.read_text(encoding="utf-8") == WRITTEN
        saved = (await browser.post("/settings", data=await reviewed(browser, data))).text
        assert "<b>heartbeat</b>: applied" in saved
        assert desk.written["heartbeat"] == {"every": "1h"}
        assert 'value="1h"' in saved


async def test_what_was_typed_after_the_review_is_reviewed_too(served: Web, desk: Desk):
    async with served.sign_in() as browser:
        data = await reviewed(browser, sent(desk, {"heartbeat.every": "1h"}))
        again = (await browser.post("/settings", data=data | {"logs.keep": "90d"})).text
    assert "<h2>Review</h2>" in again
    assert desk.path.read_text(encoding="utf-8") == WRITTEN


DECIDING = {
    "budgets.day_usd": ("9", "what it may spend"),
    "channels.telegram.access": ("pairing", "who may talk to the agent"),
    "web.allowed_hosts": ("ada", "who may talk to the agent"),
    "backup.to": ("/mnt/backups", "where it connects and sends data"),
    "channels.telegram.api_base": ("https://bots.example", "where it connects and sends data"),
}


@pytest.mark.parametrize("key", DECIDING)
async def test_rights_budgets_and_new_addresses_take_one_more_confirmation(served: Web, desk: Desk, key: str):
    text, decides = DECIDING[key]
    async with served.sign_in() as browser:
        data = await reviewed(browser, sent(desk, {key: text}))
        refused = (await browser.post("/settings", data=data)).text
        assert f"I want to change {key}" in refused
        assert f": this decides {decides}." in refused
        assert 'role="alert"' in refused
        assert desk.path.read_text(encoding="utf-8") == WRITTEN
        assert "<h2>Saved</h2>" in (await browser.post("/settings", data=data | {"confirmed": "yes"})).text
    assert desk.path.read_text(encoding="utf-8") != WRITTEN


async def test_one_press_reverts(served: Web, desk: Desk):
    async with served.sign_in() as browser:
        await browser.post("/settings", data=await reviewed(browser, sent(desk, {"heartbeat.every": "1h"})))
        assert "<h2>Saved</h2>" in (await browser.post("/settings", data={"origin": "settings-revert"})).text
    assert desk.path.read_text(encoding="utf-8") == WRITTEN


async def test_the_document_is_saved_with_its_secrets(served: Web, desk: Desk):
    text = desk.editor.form().text.replace('"Zoë"', '"Ada"')
    async with served.sign_in() as browser:
        data = await reviewed(browser, sent(desk, {"json": text}, "settings-json"))
        await browser.post("/settings", data=data | {"confirmed": "yes"})
    assert desk.written["owner"] == {"name": "Ada", "telegram": 5}
    assert desk.written["models"] == {"providers": {"openai": {"api_key": KEY}}}


async def test_a_refusal_names_the_field_and_not_the_secret(served: Web, desk: Desk):
    async with served.sign_in() as browser:
        wrong = await browser.post("/settings", data=sent(desk, {"web.port": "x"}))
        secret = await browser.post("/settings", data=sent(desk, {"database.url": "postgresql://u:zzz@h/d"}))
        broken = await browser.post("/settings", data=sent(desk, {"json": "{"}, "settings-json"))
        stale = await browser.post("/settings", data={"origin": "settings-form", "stamp": "0"})
        nothing = await browser.post("/settings", data={"stamp": desk.stamp})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (409, "web.port")
    assert (secret.status_code, secret.json()["error"]["param"]) == (409, "database.url")
    assert "SUPACLAW_DATABASE_URL=…" in secret.text
    assert "zzz" not in secret.text
    assert (broken.status_code, "line 1, column 2" in broken.text) == (409, True)
    assert (stale.status_code, "changed meanwhile" in stale.text) == (409, True)
    assert nothing.status_code == 400


async def test_a_typed_secret_is_stored_and_referred_to(running: Running, desk: Desk):
    started = await running.start(editor=desk.editor)
    secrets = started.web.backend.settings.secrets
    assert secrets is not None
    desk.secrets = secrets.lookup
    typed = {"channels.telegram.token": "123456:" + "z" * 35}
    async with started.web.sign_in() as browser:
        data = await reviewed(browser, sent(desk, typed))
        assert secrets.stored == ()
        other = await browser.post("/settings", data=data | {"channels.telegram.token": "123456:" + "y" * 35})
        assert "<h2>Review</h2>" in other.text, "what was typed after the review is reviewed, too"
        saved = await browser.post("/settings", data=data)
        assert "<b>secret TELEGRAM_BOT_TOKEN</b>: stored" in saved.text
        assert "zzz" not in saved.text + other.text
        assert desk.written["channels"] == {"telegram": {"token": "$secret:TELEGRAM_BOT_TOKEN", "allow": [7]}}
        assert secrets.lookup("TELEGRAM_BOT_TOKEN") == typed["channels.telegram.token"]
        again = await reviewed(browser, sent(desk, {"channels.telegram.token": "123456:" + "x" * 35}))
        await browser.post("/settings", data=again)
        assert secrets.lookup("TELEGRAM_BOT_TOKEN").endswith("xxx")
        taken = {"json": '{"channels": {"telegram": {"token": "' + "123456:" + "w" * 35 + '"}}}'}
        desk.path.write_text("{}")
        refused = await browser.post("/settings", data=sent(desk, taken, "settings-json"))
        assert (refused.status_code, "rotate it" in refused.text) == (409, True)
    await started.stop()


async def test_a_file_that_cannot_be_written_is_shown_to_paste(
    served: Web, desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    def refuse(self: Path, target: Path) -> None:
        raise OSError(30, "Read-only file system")

    async with served.sign_in() as browser:
        data = await reviewed(browser, sent(desk, {"heartbeat.every": "1h"}))
        monkeypatch.setattr(Path, "replace", refuse)
        page = (await browser.post("/settings", data=data)).text
    assert "Read-only file system" in page
    assert "&#34;every&#34;: &#34;1h&#34;" in page
    assert "with your own secrets where ********" in page
    assert KEY not in page


async def test_a_token_changes_nothing(served: Web, desk: Desk):
    answer = await served.client.post("/settings", data=sent(desk, {"heartbeat.every": "1h"}), headers=BEARER)
    assert answer.status_code in (401, 403)
    foreign = {"Origin": "http://evil.example"}
    async with served.sign_in() as browser:
        for path in ("/settings", "/channels/telegram/test", "/channels/telegram/enabled?on=false"):
            assert (await browser.post(path, headers=foreign)).status_code == 403
            assert (await served.client.post(path, headers=BEARER)).status_code in (401, 403)
    assert desk.path.read_text(encoding="utf-8") == WRITTEN


class Probed(FakeChannel):
    async def probe(self) -> str:
        if self.trouble:
            raise OwnerMustAct(self.trouble)
        return "@ada_bot"


async def test_a_channel_is_tested_and_switched_off(running: Running, desk: Desk):
    channel = Probed()
    probes = ChannelProbes(lambda _: ChannelSpec(Settings(), lambda: channel), Still())
    states = {"telegram": "open"}
    started = await running.start(editor=desk.editor, probes=probes, states=lambda: states)
    async with started.web.sign_in() as browser:
        assert (await browser.post("/channels/telegram/test")).status_code == 204
        assert "connected as @ada_bot" in (await browser.get("/channels")).text
        channel.trouble = "the token was <b>revoked</b>"
        await browser.post("/channels/telegram/test")
        page = (await browser.get("/channels")).text
        assert "failed: the token was &lt;b&gt;revoked&lt;/b&gt;" in page
        assert 'href="/settings?find=channels.slack"' in page
        assert (await browser.post("/channels/telegram/enabled?on=false")).status_code == 204
        assert desk.written["channels"] == {"telegram": {"token": "$env:BOT", "allow": [7], "enabled": False}}
        states["telegram"] = "disabled"
        assert "Enable" in (await browser.get("/channels")).text
        assert (await browser.post("/channels/slack/enabled?on=true")).status_code == 404
    await started.stop()
