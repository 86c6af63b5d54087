"""Hooks: tell other programs what happened to the owner, as signed Standard Webhooks.

Events are read from the tables, so that a crash loses none. Each hook has its place in them, and an event is sent again
until it is taken or given up; what follows waits meanwhile. The receiver tells a repeated one by its id.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import structlog

from gateway.config.model import HookSettings
from gateway.domain.ids import PrincipalId
from gateway.domain.time import Clock
from gateway.net.addresses import Rules
from gateway.net.api import send
from gateway.net.errors import NetError
from gateway.secrets.injection import Outgoing
from gateway.secrets.signatures import signature
from gateway.store.connection.pool import Database
from gateway.store.work import hooks
from gateway.store.work.hooks import HookEvent, HookPlace

RETRIES = tuple(timedelta(seconds=each) for each in (5, 300, 1_800, 7_200, 18_000, 36_000, 36_000))
"""The pauses before an event is sent again, as Standard Webhooks proposes; after the last one it is given up."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Sends the events that the hooks in config.json ask for."""

    database: Database
    owner: PrincipalId
    settings: Callable[[], Mapping[str, HookSettings]]
    rules: Callable[[], Rules]
    used_up: Callable[[], Awaitable[bool]]
    """Whether a budget is used up."""
    clean: Callable[[str], str]
    clock: Clock

    async def look(self) -> None:
        """Send what has happened since; a new hook begins now."""
        for name, hook in self.settings().items():
            place, events = await self.database.run(partial(hooks.following, owner=self.owner, hook=name))
            if place.retry_at is None or place.retry_at <= self.clock.now():
                await self._send(name, hook, place, [*events, *await self._budget(place)])

    async def _budget(self, place: HookPlace) -> list[HookEvent]:
        """That a budget is used up, once a day."""
        now = self.clock.now()
        day = f"{now:%Y-%m-%d}"
        told = day == place.marks.get("budget.reached") or not await self.used_up()
        return [] if told else [HookEvent(f"budget.reached.{day}", "budget.reached", day, now, {"day": day})]

    async def _send(self, name: str, hook: HookSettings, place: HookPlace, events: list[HookEvent]) -> None:
        for event in events:
            done = event.kind not in hook.events or await self._taken(name, hook, event)
            if not done and place.failures < len(RETRIES):
                place = replace(place, failures=place.failures + 1, retry_at=self.clock.now() + RETRIES[place.failures])
            else:
                place = HookPlace({**place.marks, event.kind: event.mark})
            await self.database.run(partial(hooks.keep, hook=name, place=place))
            if place.retry_at:
                return
            if not done:
                log.error("hook.given_up", hook=name, event_id=event.id)

    async def _taken(self, name: str, hook: HookSettings, event: HookEvent) -> bool:
        """Send an event; returns whether the receiver took it."""
        data = {**event.data, "text": self.clean(event.text)} if hook.content and event.text else event.data
        said = {"type": event.kind, "timestamp": event.at.isoformat(), "data": data}
        body, seconds = json.dumps(said, ensure_ascii=False), int(self.clock.now().timestamp())
        headers = {"Content-Type": "application/json", "webhook-id": event.id, "webhook-timestamp": str(seconds)}
        try:
            headers["webhook-signature"] = signature(hook.secret, event.id, seconds, body.encode())
            status = (await send(Outgoing("POST", str(hook.url), headers, body=body), self.rules)).status
        except (NetError, ValueError) as error:
            log.warning("hook.failed", hook=name, event_id=event.id, error=str(error))
            return False
        taken = 200 <= status < 300
        say = log.info if taken else log.warning
        say("hook.sent" if taken else "hook.failed", hook=name, event_id=event.id, status=status)
        return taken
