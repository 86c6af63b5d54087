"""Each messenger whose credentials are in the environment knows us; nothing is sent, nothing is taken in."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from gateway.domain.channels.channel import Channel, LoginChannel, NoFacts, ProbedChannel
from gateway.flow.channels.supervisor import channel_specs
from tests.fakes.eventually import eventually

pytestmark = pytest.mark.live

LINKED = "SUPACLAW_LIVE_WHATSAPP"
"""The data folder of a stopped gateway: of two that use one link, WhatsApp disconnects the first."""


def needs(*variables: str) -> pytest.MarkDecorator:
    missing = [name for name in variables if not os.environ.get(name)]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}")


def channel(name: str, section: Mapping[str, JsonValue], data: Path) -> Channel:
    return channel_specs({name: section}, (), data, lambda _: NoFacts())[name].make()


async def probed(made: Channel) -> str:
    assert isinstance(made, ProbedChannel)
    try:
        async with asyncio.timeout(30):
            return await made.probe()
    finally:
        await made.close()


@needs("TELEGRAM_BOT_TOKEN")
async def test_telegram_knows_the_bot(tmp_path: Path) -> None:
    telegram = channel("telegram", {"token": os.environ["TELEGRAM_BOT_TOKEN"]}, tmp_path)

    assert (await probed(telegram)).startswith("@")


@needs("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN")
async def test_slack_knows_the_app(tmp_path: Path) -> None:
    tokens = {"bot_token": os.environ["SLACK_BOT_TOKEN"], "app_token": os.environ["SLACK_APP_TOKEN"]}

    assert await probed(channel("slack", tokens, tmp_path))


@needs(LINKED)
async def test_the_whatsapp_link_still_works() -> None:
    whatsapp = channel("whatsapp", {"enabled": True}, Path(os.environ[LINKED]))
    assert isinstance(whatsapp, LoginChannel)
    await whatsapp.open()
    try:
        await eventually(lambda: whatsapp.login().state == "connected", 60)
    finally:
        await whatsapp.close()
