"""The watchdog: a channel that heard nothing for longer than it can be silent is opened anew."""

import structlog

from gateway.domain.clock import Clock
from gateway.flow.channels.manager import ChannelManager

EVERY_SECONDS = 5.0

log = structlog.get_logger(__name__)


class Watchdog:
    """Trusts answers of the platform, never the state of a socket."""

    def __init__(self, channel_manager: ChannelManager, clock: Clock) -> None:
        self._channel_manager = channel_manager
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(EVERY_SECONDS)
            self.look()

    def look(self) -> None:
        """Break off what is deaf; its door opens it again."""
        for name, seconds in self._channel_manager.silent().items():
            log.warning("channel.silent", channel=name, seconds=round(seconds))
            self._channel_manager.reopen(name)
