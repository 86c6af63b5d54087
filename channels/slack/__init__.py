"""Slack over Socket Mode, with slack_sdk; the gateway needs no public address."""

from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from channels.slack.channel import Slack, preload
from channels.slack.client import Client
from gateway.domain.channels.channel import Channel, ChannelFacts, Menu
from gateway.domain.channels.platform import Logger
from gateway.domain.settings import ChannelSettings, HttpUrl

MANIFEST = Path(__file__).with_name("manifest.yaml").read_text(encoding="utf-8")

__all__ = ["Settings", "create", "preload"]


def _token(prefix: str, page: str) -> AfterValidator:
    def checked(secret: SecretStr) -> SecretStr:
        token = secret.get_secret_value()
        if not token.startswith(prefix) or not token.removeprefix(prefix).replace("-", "").isalnum():
            raise ValueError(f"must start with {prefix}; api.slack.com/apps shows it under {page}")
        return secret

    return AfterValidator(checked)


class Settings(ChannelSettings):
    """The `channels.slack` section of config.json."""

    TITLE = "Slack"
    STEPS = (
        "On api.slack.com/apps choose Create New App, From a manifest, and paste the text below. Install the app to "
        "your workspace: OAuth & Permissions shows the bot token. Under Basic Information, App-Level Tokens, generate "
        "a token with connections:write."
    )
    COPY = MANIFEST
    PERSON = "[UW][A-Z0-9]+"
    GROUP = "[CG][A-Z0-9]+"
    IDS = (
        "a person's is a member ID like U012AB3CD, from *Copy member ID* in the profile, a channel's one like C012AB3CD"
    )
    VARIABLES = MappingProxyType({"SLACK_BOT_TOKEN": "bot_token", "SLACK_APP_TOKEN": "app_token"})

    bot_token: Annotated[SecretStr, _token("xoxb-", "OAuth & Permissions")]
    """The app's bot token, xoxb-…, from OAuth & Permissions."""
    app_token: Annotated[SecretStr, _token("xapp-", "Basic Information, App-Level Tokens")]
    """An app-level token, xapp-…, with connections:write."""
    base_url: HttpUrl | None = None
    """A Slack API of your own; null means Slack's."""
    ping_interval: float = Field(2.0, ge=0.1, le=10)
    """Seconds between pings; a dead connection is noticed within about two of them."""


def create(settings: Settings, *, commands: Menu, log: Logger, data: Path, facts: ChannelFacts) -> Channel:
    """The channel, not yet open; people may write the names in `commands` as `!name`.

    `facts` store what Slack can't be asked for: the threads that the agent takes part in, and unfinished messages.
    """
    del data
    bot_token, app_token = settings.bot_token.get_secret_value(), settings.app_token.get_secret_value()
    client = Client(bot_token, app_token, settings.base_url)
    names = frozenset(name for name, _ in commands)
    return Slack(client, ping_interval=settings.ping_interval, commands=names, log=log, facts=facts)
