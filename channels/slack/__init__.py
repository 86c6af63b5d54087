"""Slack, over Socket Mode, with slack_sdk: nothing has to be reachable from outside."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from pydantic import Field, SecretStr, field_validator

from channels.slack.channel import Slack, preload
from channels.slack.client import Client
from gateway.domain.channels.channel import Channel, ChannelFacts
from gateway.domain.channels.platform import Logger
from gateway.domain.settings import ChannelSettings, HttpUrl

MANIFEST = """\
display_information:
  name: SupaClaw
  description: Your own agent
features:
  app_home:
    home_tab_enabled: false
    messages_tab_enabled: true
    messages_tab_read_only_enabled: false
  bot_user:
    display_name: SupaClaw
    always_online: true
  agent_view:
    agent_description: Your own agent. It remembers, keeps schedules and works with your files.
    suggested_prompts:
      - title: What can you do?
        message: What can you do for me?
      - title: What is next?
        message: What am I working on, and what is due next?
  slash_commands:
    - command: /claw
      description: A command, or a message to the agent
      usage_hint: "new | status | help | anything you want to say"
      should_escape: false
oauth_config:
  scopes:
    bot:
      - app_mentions:read
      - assistant:write
      - channels:history
      - chat:write
      - commands
      - files:read
      - files:write
      - groups:history
      - im:history
      - metadata.message:read
      - mpim:history
      - reactions:write
      - users:read
settings:
  event_subscriptions:
    bot_events:
      - app_mention
      - message.channels
      - message.groups
      - message.im
      - message.mpim
  interactivity:
    is_enabled: true
  org_deploy_enabled: false
  socket_mode_enabled: true
  token_rotation_enabled: false
"""


__all__ = ["Settings", "create", "preload"]


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

    bot_token: SecretStr = Field(description="The app's bot token, xoxb-…, from OAuth & Permissions.")
    app_token: SecretStr = Field(description="An app-level token, xapp-…, with connections:write.")
    base_url: HttpUrl | None = Field(None, description="A Slack API of your own; null means Slack's.")
    ping_interval: float = Field(
        2.0, ge=0.1, le=10, description="Seconds between pings; a dead connection is noticed within about two of them."
    )

    @field_validator("bot_token")
    @classmethod
    def _is_a_bot_token(cls, token: SecretStr) -> SecretStr:
        return _checked(token, "xoxb-", "OAuth & Permissions")

    @field_validator("app_token")
    @classmethod
    def _is_an_app_token(cls, token: SecretStr) -> SecretStr:
        return _checked(token, "xapp-", "Basic Information, App-Level Tokens")


def create(
    settings: Settings, *, commands: Sequence[tuple[str, str]], log: Logger, data: Path, facts: ChannelFacts
) -> Channel:
    """The channel, not yet open; `commands` are those that a person may write as `!name`.

    `facts` are what Slack does not tell again: the threads we take part in and what is half sent. Older gateways kept
    them in `data`.
    """
    bot_token, app_token = settings.bot_token.get_secret_value(), settings.app_token.get_secret_value()
    client = Client(bot_token, app_token, settings.base_url)
    names = frozenset(name for name, _ in commands)
    return Slack(client, ping_interval=settings.ping_interval, commands=names, log=log, data=data, facts=facts)


def _checked(secret: SecretStr, prefix: str, page: str) -> SecretStr:
    token = secret.get_secret_value()
    if not token.startswith(prefix) or not token.removeprefix(prefix).replace("-", "").isalnum():
        raise ValueError(f"must start with {prefix}; api.slack.com/apps shows it under {page}")
    return secret
