"""Telegram, by long polling or webhook, over aiogram."""

import re
from pathlib import Path
from secrets import token_urlsafe
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, SecretStr, model_validator

from channels.telegram.channel import Telegram, preload
from gateway.domain.channels.channel import Channel, ChannelFacts, Menu
from gateway.domain.channels.platform import Logger
from gateway.domain.settings import ChannelSettings, HttpUrl

__all__ = ["Settings", "create", "preload"]


def _checked(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[0-9]+:\S+", token.get_secret_value()):
        raise ValueError("not a bot token; @BotFather gives one like 123456:ABC-DEF")
    return token


class Settings(ChannelSettings):
    """The `channels.telegram` section of config.json."""

    TITLE = "Telegram"
    STEPS = "In Telegram, write /newbot to @BotFather, choose a name, and paste the token it gives you."
    PERSON = r"[1-9]\d{0,18}"
    GROUP = r"-[1-9]\d{0,18}"
    IDS = "a person's id is a number like 123456789, from @userinfobot; a group's is like -1001234567890"
    VARIABLES = MappingProxyType({"TELEGRAM_BOT_TOKEN": "token"})

    token: Annotated[SecretStr, AfterValidator(_checked)]
    """The bot's token, from @BotFather."""
    mode: Literal["polling", "webhook"] = "polling"
    """How updates arrive."""
    api_base: HttpUrl | None = None
    """A Bot API server of your own; null means Telegram's."""
    webhook_url: HttpUrl | None = None
    """The public address of /webhook/telegram, for mode webhook."""
    webhook_secret: SecretStr | None = None
    """The secret that Telegram sends with each webhook call; null: a new one at every start."""
    rich_messages: bool = True
    """Send tables and formulas as rich messages; false if your apps are too old to show them."""

    @model_validator(mode="after")
    def _webhook_has_an_address(self) -> Self:
        if self.mode == "webhook" and self.webhook_url is None:
            raise ValueError("mode webhook needs webhook_url, the public address of /webhook/telegram")
        return self


def create(settings: Settings, *, commands: Menu, log: Logger, data: Path, facts: ChannelFacts) -> Channel:
    """The channel, not yet open; `commands` are names and descriptions for the menu. `data` and `facts` are unused."""
    del data, facts
    return Telegram(
        token=settings.token.get_secret_value(),
        api_base=settings.api_base,
        webhook_url=settings.webhook_url if settings.mode == "webhook" else None,
        webhook_secret=settings.webhook_secret.get_secret_value() if settings.webhook_secret else token_urlsafe(32),
        commands=commands,
        log=log,
        rich=settings.rich_messages,
    )
