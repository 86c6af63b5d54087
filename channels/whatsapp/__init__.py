"""WhatsApp, as a linked device, over neonize."""

from collections.abc import Callable, Iterator
from pathlib import Path

from channels.whatsapp.channel import WhatsApp
from channels.whatsapp.sdk import preload
from channels.whatsapp.store import Store
from gateway.domain.channels.channel import Channel, ChannelFacts, Menu
from gateway.domain.channels.platform import Logger
from gateway.domain.settings import ChannelSettings

__all__ = ["Settings", "backup_files", "create", "preload"]


class Settings(ChannelSettings):
    """The `channels.whatsapp` section of config.json. It has no token: an account is linked by a login."""

    TITLE = "WhatsApp"
    STEPS = "Your agent becomes a linked device of a WhatsApp account, best one with a number of its own."
    PERSON = r"[1-9]\d{4,14}|\d+@lid"
    GROUP = r"[\d-]+@g\.us"
    IDS = (
        "a person's is the phone number with its country code, digits only, like 4915112345678, a group's ends in @g.us"
    )


def create(settings: Settings, *, commands: Menu, log: Logger, data: Path, facts: ChannelFacts) -> Channel:
    """The channel, not yet open; `data` stores the session of the linked device. `commands` and `facts` are unused."""
    del settings, commands, facts
    return WhatsApp(store=Store(data), log=log)


def backup_files(data: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The files with which another machine becomes this device; may be read while another process uses the channel."""
    return Store(data).backup_files()
