"""The core: the parts that a start creates first; all other parts are built from it."""

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
    """The parts that exist before all others."""

    environment: Environment
    current: LiveConfig
    """The current config.json; ask at each use."""
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
        """The guard that keeps live secrets out of texts."""
        return LeakGuard(self.mask.leaks)

    def net_rules(self) -> Rules:
        """The addresses that may be connected to, as configured now."""
        return Rules.of(self.current.config.net.private_allow)
