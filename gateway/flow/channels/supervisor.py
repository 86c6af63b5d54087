"""Supervises the configured channels: opens each, reopens what breaks, replaces one whose settings change, and probes
credentials. Of several gateways, one opens a channel, the one that has its lease."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path

import structlog
from pydantic import JsonValue

from gateway.config.channels import channel_names, enabled_channels, known_channel, parse_channel
from gateway.domain.channels.channel import Accept, Channel, ChannelFacts, LoginChannel, Menu, ProbedChannel
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.health import ChannelVitals
from gateway.domain.ids import InstanceId
from gateway.domain.people.access import Access
from gateway.domain.settings import ChannelSettings
from gateway.domain.time import Clock
from gateway.domain.work.tasks import backoff
from gateway.flow.channels.monitoring import OPEN, REFUSED, ChannelReports, Reception, ReceptionSilent, TellOwner
from gateway.flow.outbound.sender import Outbound
from gateway.flow.signals import Signals
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import instances
from gateway.store.work.instances import LOOK_SECONDS

CLOSE_SECONDS = 10.0
OPEN_SECONDS = 120.0
"""No platform is asked anything while a channel is opened; one that takes longer will never be open."""
STEADY_SECONDS = 60.0
"""If a channel ran longer than this before it failed, the count of its failures starts again."""
_MOST_PATIENT = 3
"""How often the patience with a silent channel doubles, so that a long outage is no drumbeat."""

log = structlog.get_logger(__name__)


def lease_of(channel: str) -> str:
    """The lease's name."""
    return f"channel {channel}"


@dataclass(slots=True)
class ChannelLeases:
    """The channels that are ours; `held` are the names of their leases, which are to be renewed."""

    database: Database
    instance: InstanceId
    held: set[str] = field(default_factory=set, init=False)

    def has(self, channel: str) -> bool:
        """Whether it is ours."""
        return lease_of(channel) in self.held

    async def take(self, channel: str, *, stays: bool = False) -> str:
        """Take it if it is free; else why we have to wait.

        One that `stays` with its machine does so until that is forgotten.
        """
        if self.has(channel):
            return ""
        try:
            waits = await self.database.run(lambda tx: self._take(tx, channel, stays=stays))
        except TryAgainLater as exc:
            return f"waits for the database: {exc}"
        if not waits:
            self.held.add(lease_of(channel))
        return waits

    async def drop(self, channel: str) -> None:
        """Let others have it, at once or when the lease is over."""
        if self.has(channel):
            self.held.discard(lease_of(channel))
            with suppress(TryAgainLater):
                await self.database.run_alone(lambda conn: instances.drop_lease(conn, lease_of(channel), self.instance))

    async def _take(self, tx: Connection, channel: str, *, stays: bool) -> str:
        if stays and (machine := await instances.settle(tx, channel, self.instance)):
            return (
                f"waits for its machine {machine}, in whose files it keeps what it needs; if that machine is gone for "
                f"good, `supaclaw machines forget {machine}` lets this one connect anew"
            )
        if await instances.take_lease(tx, lease_of(channel), self.instance, instances.LEASE_SECONDS):
            return ""
        return f"waits: {await instances.holder(tx, lease_of(channel)) or 'another gateway'} has it open"


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A configured channel: its settings, and how it is made from them."""

    settings: ChannelSettings
    make: Callable[[], Channel]

    @property
    def access(self) -> Access:
        """The rule for who may talk to the agent on this channel."""
        return Access(self.settings.access, frozenset(self.settings.allow), self.settings.groups)

    def same(self, other: "ChannelSpec") -> bool:
        """Whether nothing changed that the channel itself sees: who may talk is decided behind the opened."""
        return _without_access(self.settings) == _without_access(other.settings)


def channel_specs(
    sections: Mapping[str, Mapping[str, JsonValue]], menu: Menu, data: Path, facts: Callable[[str], ChannelFacts]
) -> dict[str, ChannelSpec]:
    """The configured channels; `menu` is the slash commands they may show. Raises `ConfigError`.

    What a channel has to remember goes into its `facts`, or into a folder of its own below `data`.
    """
    return {
        name: _spec(name, sections[name], menu=menu, data=data / "channels" / name, facts=facts(name))
        for name in enabled_channels(sections)
    }


def _spec(name: str, raw: Mapping[str, JsonValue], *, menu: Menu, data: Path, facts: ChannelFacts) -> ChannelSpec:
    module = import_module(f"channels.{known_channel(name, channel_names())}")
    settings: ChannelSettings = parse_channel(name, raw, module.Settings)
    log = structlog.get_logger(name)
    return ChannelSpec(settings, partial(module.create, settings, commands=menu, log=log, data=data, facts=facts))


def preload(names: Iterable[str]) -> None:
    """Import what these channels need, in a thread, so that opening them takes no time."""
    for name in set(names) & set(channel_names()):
        getattr(import_module(f"channels.{name}"), "preload", lambda: None)()


@dataclass(frozen=True, slots=True)
class _OpenChannel:
    spec: ChannelSpec
    channel: Channel
    task: asyncio.Task[None]


@dataclass(slots=True)
class ChannelSupervisor:
    """Opens, keeps and shuts channels, and tells the sender which there are.

    A channel that another gateway on this database has waits until that one stops or dies.
    """

    outbound: Outbound
    tell_owner: TellOwner
    leases: ChannelLeases
    signals: Signals
    _: KW_ONLY
    monotonic: Callable[[], float] = time.monotonic
    _reports: ChannelReports = field(init=False)
    _open: dict[str, _OpenChannel] = field(default_factory=dict, init=False)
    _states: dict[str, str] = field(default_factory=dict, init=False)
    _receptions: dict[str, Reception] = field(default_factory=dict, init=False)
    _opening: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._reports = ChannelReports(self.tell_owner, self.monotonic)

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The configured channels by name."""
        return {name: opened.channel for name, opened in self._open.items()}

    @property
    def states(self) -> Mapping[str, str]:
        """How each channel is, in words."""
        return {name: self._state(name) for name in self._open}

    @property
    def vitals(self) -> Mapping[str, ChannelVitals]:
        """How each channel is, and when it was last heard."""
        return {name: ChannelVitals(state, self._heard_ago(name)) for name, state in self.states.items()}

    def stuck(self) -> Mapping[str, str]:
        """The channels that cannot even try to work, and why; one whose messenger is away, or that is shut, can."""
        tasks = {name: opened.task for name, opened in self._open.items()}
        ended = [name for name, task in tasks.items() if task.cancelled() and not task.cancelling()]
        slow = [name for name, since in self._opening.items() if self.monotonic() - since > OPEN_SECONDS]
        return dict.fromkeys(ended, "its task has ended") | dict.fromkeys(slow, "it does not come back from opening")

    def silent(self) -> Mapping[str, float]:
        """The channels that heard nothing for longer than a healthy one can, with the seconds."""
        return {name: reception.silence for name, reception in self._receptions.items() if reception.overdue}

    async def look(self) -> None:
        """Reopen silent channels, and tell the owner of those that stopped working or work again."""
        await self.reopen_silent()
        await self._reports.look(self.states)

    async def reopen_silent(self) -> None:
        """Break off their receptions, so that they are opened again; the state of a socket is not trusted."""
        for name, seconds in self.silent().items():
            log.warning("channel.silent", channel=name, seconds=round(seconds))
            self._receptions[name].break_off()

    async def apply(self, wanted: Mapping[str, ChannelSpec], accept: Accept, group: asyncio.TaskGroup) -> None:
        """Close channels that are no longer wanted or have changed, open those that are missing, as tasks of `group`.

        Every new channel is made before one is closed, so a channel that can't be made takes none down: `make` raises.
        """
        kept = {name for name, opened in self._open.items() if name in wanted and opened.spec.same(wanted[name])}
        made = {name: spec.make() for name, spec in wanted.items() if name not in kept}
        for name in self._open.keys() - kept:
            await self._shut(name, again=name in wanted)
        for name, channel in made.items():
            self._states[name] = "opening"
            task = group.create_task(self._keep(name, channel, accept), name=f"channel {name}")
            self._open[name] = _OpenChannel(wanted[name], channel, task)

    async def stop_receiving(self, *, sending: bool = True) -> None:
        """Take nothing more in. What is known can still be sent; without `sending`, only what is on its way."""
        for name in () if sending else self._open:
            self.outbound.abandon(name)
        tasks = [opened.task for opened in self._open.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def shut(self) -> None:
        """Shut every channel."""
        for name in list(self._open):
            await self._shut(name)

    async def _shut(self, name: str, *, again: bool = False) -> None:
        opened = self._open.pop(name)
        self.outbound.abandon(name)
        opened.task.cancel()
        await asyncio.wait([opened.task])
        self._receptions.pop(name, None)
        await _close(opened.channel)
        if not again:
            await self._give_up(name)

    async def _give_up(self, name: str) -> None:
        """Another gateway may open it from now on."""
        self.outbound.part(name)
        await self.leases.drop(name)

    async def _hold(self, name: str, channel: Channel) -> None:
        """Wait until no other gateway has it."""
        while why := await self.leases.take(name, stays=not channel.capabilities.portable):
            if self._states[name] != why:
                log.info("channel.waits", channel=name, why=why)
            self._states[name] = why
            await asyncio.sleep(LOOK_SECONDS)

    async def _keep(self, name: str, channel: Channel, accept: Accept) -> None:
        """Receive forever; reopen a channel that fails, and keep it closed if only the owner can fix it.

        Nothing is sent through a channel that is not open. One that waits for a login is opened again and rests by
        itself.
        """
        failures = silences = 0
        await self._hold(name, channel)
        while True:
            began = self._opening[name] = self.monotonic()
            try:
                try:
                    await channel.open()
                finally:
                    del self._opening[name]
                await self.outbound.adopt(name, channel)
                self.signals.commands.set()  # another instance may have left work
                self.signals.deliveries.set()
                self.signals.tasks.set()
                self._states[name] = _unheard(channel, silences)
                patience = 2 ** min(silences, _MOST_PATIENT)
                self._receptions[name] = Reception(channel, accept, patience, self.monotonic)
                await self._receptions[name].run()
            except ReceptionSilent as exc:
                silences = 1 if self._receptions[name].heard_at is not None else silences + 1
                self.outbound.abandon(name)
                self._states[name] = f"deaf: {exc}; opening again"
                log.warning("channel.reopened", channel=name, problem=str(exc))
                await _close(channel)
            except Exception as exc:
                failures = 1 if self.monotonic() - began > STEADY_SECONDS else failures + 1
                self.outbound.abandon(name)
                if isinstance(exc, OwnerMustAct):
                    await self._report(name, exc)
                    if not isinstance(channel, LoginChannel):
                        return await self._give_up(name)
                else:
                    self._states[name] = f"broken: {type(exc).__name__}: {exc}"
                    log.exception("channel.broken", channel=name, again_in=backoff(failures))
                await _close(channel)
                await asyncio.sleep(backoff(failures))

    async def _report(self, name: str, problem: OwnerMustAct) -> None:
        """Tell the owner once, on any channel that reaches them, about a problem that only they can fix."""
        state = f"{REFUSED}{problem}"
        if self._states[name] != state:
            self._states[name] = state
            log.warning("channel.shut", channel=name, problem=str(problem))
            await self._reports.stopped(name, state)

    def _state(self, name: str) -> str:
        if self.leases.has(name) and (trouble := self._open[name].channel.trouble):
            return trouble
        reception = self._receptions.get(name)
        return OPEN if reception is not None and reception.hears else self._states[name]

    def _heard_ago(self, name: str) -> float | None:
        heard_at = self._open[name].channel.heard_at
        return None if heard_at is None else round(max(0.0, self.monotonic() - heard_at), 1)


def _unheard(channel: Channel, silences: int) -> str:
    """The state of a channel that was opened, until its platform answers; one that is pushed to may never hear."""
    if silences:
        return "deaf: nothing heard since it was opened again"
    return OPEN if channel.capabilities.silence is None else "connecting"


async def _close(channel: Channel) -> None:
    """Close the channel; log any error, so that the other channels continue."""
    with logged(log, "channel.not_closed", channel=channel.name):
        async with asyncio.timeout(CLOSE_SECONDS):
            await channel.close()


def _without_access(settings: ChannelSettings) -> ChannelSettings:
    return settings.model_copy(update={"access": "allowlist", "allow": (), "groups": "mention"})


PROBE_SECONDS = 20.0


async def probe(spec: ChannelSpec) -> str | None:
    """Our name on the platform; None for one that cannot be asked. Raises `SupaclawError` or `TimeoutError`."""
    channel = spec.make()
    if not isinstance(channel, ProbedChannel):
        return None
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await channel.probe()
    finally:
        await channel.close()


@dataclass(frozen=True, slots=True)
class ChannelProbes:
    """Probes channels for the page; `results` has the last one of each, in words."""

    spec: Callable[[str], ChannelSpec]
    clock: Clock
    results: dict[str, tuple[datetime, str]] = field(default_factory=dict)

    async def run(self, name: str) -> None:
        """Probe it with the settings in use, and keep the result; raises `ConfigError` for an unknown channel."""
        spec = self.spec(name)
        try:
            who = await probe(spec)
            result = f"connected as {who}" if who else "the settings are valid; this platform can't be asked"
        except (SupaclawError, TimeoutError) as error:
            result = f"failed: {str(error) or 'no answer'}"
        self.results[name] = self.clock.now(), result
