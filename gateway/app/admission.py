"""Applies config.json to access and channels, at the start and after each change."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from gateway.app.local import is_secret
from gateway.app.parts.core import Core
from gateway.background.worker import Worker
from gateway.config.channels import check_channels, check_owner
from gateway.config.data.keys import read_keys
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.config.watch import ConfigWatch
from gateway.domain.channels.channel import Menu
from gateway.domain.errors import TryAgainLater
from gateway.flow.channels.supervisor import ChannelSpec, channel_specs
from gateway.flow.outbound.proactive import Notices
from gateway.llm.client import ModelClient
from gateway.store.delivery.addresses import StoredFacts
from gateway.store.work import tasks

log = structlog.get_logger("gateway")

OpenChannels = Callable[[Mapping[str, ChannelSpec], asyncio.TaskGroup], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Applies config.json. `menu` lists the commands that channels offer, each with its summary."""

    core: Core
    notices: Notices
    worker: Worker
    menu: Menu
    open_channels: OpenChannels | None
    """Opens these channels and closes all others; None if another process runs the channels."""

    async def apply(self, config: Config) -> Mapping[str, ChannelSpec]:
        """Load who has access and return the channels to open. Raises `TryAgainLater`, `OwnerMustAct`."""
        core, people = self.core, self.core.people
        check_owner(config.owner.ids)
        specs = channel_specs(config.channels, self.menu, core.environment.data, partial(StoredFacts, core.database))
        for part in (config, *(spec.settings for spec in specs.values())):
            core.mask.learn(part)
        for name in filter(is_secret, os.environ):
            core.mask.add(os.environ[name])
        for name, spec in specs.items():
            if spec.access.anyone:
                log.warning("channel.open_to_all", channel=name, hint=f'"*" or "open" lets anyone use {name}')
        people.allow({name: spec.access for name, spec in specs.items()})
        await people.learn(core.database, config.owner.name, config.owner.ids)
        for line in people.unsettled(config.owner.ids, specs):
            log.warning("owner.unsettled", hint=line)
        return specs

    def watch(self, group: asyncio.TaskGroup) -> ConfigWatch:
        """The watch that reloads config.json; the channels that it opens run in `group`."""
        core = self.core

        def parsed(text: str) -> Config:
            config = parse(text, os.environ, core.secrets.lookup)
            check_channels(config)
            return config

        async def rejected(problem: str) -> None:
            await self.notices.tell_owner(f"config.json wasn't applied. {problem}")

        def keys() -> Mapping[str, str]:
            return {**read_keys(core.environment.data), **core.secrets.versions()}

        watch = ConfigWatch(core.environment.config, core.current.config, parsed, rejected, _keys=keys)
        watch.subscribe(lambda config: self._change(config, group))
        return watch

    async def _change(self, config: Config, group: asyncio.TaskGroup) -> None:
        """Apply an edited configuration; running turns keep the models that they started with."""
        if replaced := await self.core.current.apply(config):
            group.create_task(self._retire(replaced), name="retired models")
        specs = await self._apply_patiently(config)
        if replaced:
            with suppress(TryAgainLater):
                await self.core.database.run(lambda conn: tasks.hasten_kind(conn, "transcribe"))
        if self.open_channels is not None:
            await self.open_channels(specs, group)
        self.core.signals.deliveries.set()

    async def _retire(self, model: ModelClient) -> None:
        """Close `model` when the turns that use it have ended. Never raises: an error would end the whole group."""
        try:
            await self.worker.settle()
            await model.close()
        except Exception:
            log.exception("models.not_closed")

    async def _apply_patiently(self, config: Config) -> Mapping[str, ChannelSpec]:
        """`apply`, retried while the database is unavailable; revoked access is revoked at once."""
        while True:
            try:
                return await self.apply(config)
            except TryAgainLater as exc:
                log.warning("config.waits", error=str(exc))
                await self.core.clock.sleep(1.0)
