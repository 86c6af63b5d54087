import pytest

from gateway.domain.channels.channel import Login
from gateway.web.api import logins
from tests.fakes.login import FakeLogin
from tests.web.conftest import BEARER, Running


async def test_a_login_is_told_as_it_stands(running: Running):
    login = FakeLogin()
    started = await running.start(logins=lambda: {"whatsapp": login})
    client = started.web.client
    told = await client.get("/api/channels/whatsapp/login", headers=BEARER)
    assert told.json() == {"state": "waiting", "account": "", "qr": "2@first,code", "code": "", "problem": ""}
    coded = await client.post("/api/channels/whatsapp/login", json={"phone": "+49 (170) 123-4567"}, headers=BEARER)
    assert (coded.json(), login.asked) == ({"code": "ABCD-EFGH"}, ["491701234567"])
    out = await client.post("/api/channels/whatsapp/logout", headers=BEARER)
    assert (out.status_code, out.content, login.state.state) == (204, b"", "logged out")
    await started.stop()


@pytest.mark.parametrize("phone", ["", "abc", "12", "0170 1234567", "4" * 20, "+49170' or 1=1"])
async def test_what_is_no_phone_number_is_refused(running: Running, phone: str):
    login = FakeLogin()
    started = await running.start(logins=lambda: {"whatsapp": login})
    answer = await started.web.client.post("/api/channels/whatsapp/login", json={"phone": phone}, headers=BEARER)
    assert (answer.status_code, login.asked) == (400, [])
    await started.stop()


async def test_what_the_owner_has_to_do_is_said(running: Running):
    started = await running.start(logins=lambda: {"whatsapp": FakeLogin()})
    body = {"phone": "+49 170 0000000"}
    answer = await started.web.client.post("/api/channels/whatsapp/login", json=body, headers=BEARER)
    assert (answer.status_code, "wait an hour" in answer.text) == (409, True)
    await started.stop()


async def test_a_channel_without_a_login_has_none(running: Running):
    started = await running.start()
    client = started.web.client
    assert (await client.get("/api/channels/telegram/login", headers=BEARER)).status_code == 404
    assert (await client.post("/api/channels/telegram/logout", headers=BEARER)).status_code == 404
    answer = await client.post("/api/channels/telegram/login", json={"phone": "+491701234567"}, headers=BEARER)
    assert answer.status_code == 404
    await started.stop()


async def test_the_page_draws_the_code_and_escapes_what_the_platform_says(running: Running):
    login = FakeLogin(Login("waiting", qr="2@x", problem="<script>alert(1)</script>"))
    channels = {"telegram": "shut: <b>no</b>", "whatsapp": "open"}
    started = await running.start(states=lambda: channels, logins=lambda: {"whatsapp": login})
    async with started.web.sign_in() as browser:
        page = (await browser.get("/channels")).text
        assert '<svg viewBox="0 0 ' in page
        assert "&lt;script&gt;" in page
        assert "Shut: &lt;b&gt;no&lt;/b&gt;" in page
        assert "<b>WhatsApp</b><small>Connected</small>" in page
        assert 'href="/settings?find=channels.telegram.access"' in (await browser.get("/people")).text
        assert (await browser.post("/channels/whatsapp/login", data={"phone": "+49 170 1234567"})).status_code == 204
        assert "ABCD-EFGH" in (await browser.get("/channels")).text
        assert (await browser.post("/channels/whatsapp/logout")).status_code == 204
    await started.stop()


def test_what_fits_into_no_qr_code_is_not_drawn():
    assert logins.qr_picture("x" * 5000) == ""
