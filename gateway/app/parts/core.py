"""What a start hands over: every other part is built of it."""

from dataclasses import dataclass

from gateway.app.live_config import LiveConfig
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.domain.ids import InstanceId
from gateway.domain.time import Clock
from gateway.flow.live import Live
from gateway.flow.people import People
from gateway.flow.secrets.guard import LeakGuard
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.signals import Signals
from gateway.logs import SecretMask
from gateway.net.addresses import Rules
from gateway.store.connection.pool import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What is there before anything is built."""

    environment: Environment
    current: LiveConfig
    """config.json as it is now; ask at each use."""
    database: Database
    people: People
    instance: InstanceId
    clock: Clock
    failpoints: Failpoints
    secrets: LiveSecrets
    mask: SecretMask
    live: Live
    signals: Signals

    @property
    def guard(self) -> LeakGuard:
        """Keeps live secrets out of texts."""
        return LeakGuard(self.mask.leaks)

    def net_rules(self) -> Rules:
        """Which addresses may be connected to, as configured now."""
        return Rules.of(self.current.config.net.private_allow)
