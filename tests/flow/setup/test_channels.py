import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from channels.slack import MANIFEST
from gateway.domain.errors import OwnerMustAct
from gateway.flow.setup import channel_forms, connect_channel
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.flow.setup.conftest import Home

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as telegram:
        yield telegram


@pytest.fixture
def own(home: Callable[[str], Home], telegram: FakeTelegram) -> Home:
    return home(json.dumps({"channels": {"telegram": {"enabled": False, "api_base": telegram.url}}}))


async def test_a_bot_is_tested_and_saved_by_reference(own: Home, telegram: FakeTelegram) -> None:
    waiting = telegram.say("hello")
    connected = await connect_channel(own.setup, "telegram", {"token": f" {telegram.token}\n"})

    assert (connected.who, connected.link) == ("@fake_bot", "https://t.me/fake_bot?start=")
    assert own.keys == {"TELEGRAM_BOT_TOKEN": telegram.token}
    assert telegram.token not in own.config
    section = json.loads(own.config)["channels"]["telegram"]
    assert section == {"enabled": True, "api_base": telegram.url, "token": "$env:TELEGRAM_BOT_TOKEN"}
    assert own.setup.config().channels["telegram"]["token"] == telegram.token
    assert own.hidden == [telegram.token]
    assert telegram.pending == [waiting], "nothing was taken in"


@pytest.mark.parametrize(
    ("token", "advice"),
    [("", "paste The bot's token"), ("@fake_bot", "not a bot token; @BotFather gives one"), ("sk-proj-1", "not a bot")],
)
async def test_what_is_no_token_is_told(own: Home, token: str, advice: str) -> None:
    with pytest.raises(OwnerMustAct, match=advice):
        await connect_channel(own.setup, "telegram", {"token": token})
    assert own.keys == {}


async def test_a_refused_token_is_told(own: Home, telegram: FakeTelegram) -> None:
    telegram.revoked = True
    before = own.config
    with capture_logs() as logs, pytest.raises(OwnerMustAct, match="wrong or was revoked; @BotFather") as refused:
        await connect_channel(own.setup, "telegram", {"token": telegram.token})

    assert telegram.token not in f"{refused.value} {logs}"
    assert (own.config, own.keys) == (before, {})


async def test_a_bot_that_another_program_polls_is_told(own: Home, telegram: FakeTelegram) -> None:
    telegram.fault("getUpdates", 409, "Conflict: terminated by other getUpdates request")
    with pytest.raises(OwnerMustAct, match="another program uses this bot's token; stop it, or give each"):
        await connect_channel(own.setup, "telegram", {"token": telegram.token})
    assert own.keys == {}


async def test_our_own_reception_is_left_alone(own: Home, telegram: FakeTelegram) -> None:
    await connect_channel(own.setup, "telegram", {"token": telegram.token})
    polls = telegram.polls
    await connect_channel(own.setup, "telegram", {"token": telegram.token})
    assert telegram.polls == polls


async def test_a_platform_that_cannot_be_reached_is_told(home: Callable[[str], Home]) -> None:
    own = home('{"channels": {"telegram": {"enabled": false, "api_base": "http://127.0.0.1:9"}}}')
    with pytest.raises(OwnerMustAct, match="cannot connect to 127"):
        await connect_channel(own.setup, "telegram", {"token": "424242:" + "A" * 35})


async def test_both_tokens_of_slack_are_tested(home: Callable[[str], Home]) -> None:
    async with FakeSlack() as slack:
        own = home(json.dumps({"channels": {"slack": {"enabled": False, "base_url": slack.url}}}))
        swapped = {"bot_token": "xapp-1-abc", "app_token": "xoxb-1-abc"}
        with pytest.raises(OwnerMustAct, match="bot_token: must start with xoxb-"):
            await connect_channel(own.setup, "slack", swapped)
        with pytest.raises(OwnerMustAct, match="paste An app-level token"):
            await connect_channel(own.setup, "slack", {"bot_token": "xoxb-1-abc"})
        connected = await connect_channel(own.setup, "slack", {"bot_token": "xoxb-1-abc", "app_token": "xapp-1-abc"})

    assert connected.who == "@claw"
    assert own.keys == {"SLACK_BOT_TOKEN": "xoxb-1-abc", "SLACK_APP_TOKEN": "xapp-1-abc"}
    assert "xoxb-1-abc" not in own.config


async def test_whatsapp_is_switched_on_and_linked_later(home: Callable[[str], Home]) -> None:
    own = home("{}")
    await connect_channel(own.setup, "whatsapp", {})

    assert json.loads(own.config) == {"channels": {"whatsapp": {"enabled": True}}}
    assert own.keys == {}


async def test_the_forms_say_what_to_do(home: Callable[[str], Home]) -> None:
    shown = {form.name: form for form in await asyncio.to_thread(channel_forms)}

    assert list(shown) == ["slack", "telegram", "whatsapp"]
    assert all(form.title and form.steps for form in shown.values())
    assert list(shown["slack"].fields) == ["bot_token", "app_token"]
    indented = "".join(f"   {line}\n" if line else "\n" for line in MANIFEST.splitlines())
    assert f"```yaml\n{indented}   ```" in (DOCS / "channels.md").read_text(), "the manifest in the docs is this one"
