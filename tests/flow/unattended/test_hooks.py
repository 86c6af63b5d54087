"""Programs of the owner's are told what happened, over real HTTP, and check it as the Standard Webhooks say."""

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from gateway.config.machine import SystemClock
from gateway.config.model import HookSettings
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.principals import Label
from gateway.flow.unattended.hooks import RETRIES, Hooks
from gateway.net.addresses import Rules
from gateway.store.connection.pool import Database
from gateway.store.transcript import messages, sessions
from tests.fakes.served import Served
from tests.store.world import World, found

SECRET = "whsec_" + b64encode(b"k" * 32).decode()


@dataclass
class Receiver:
    """A program that verifies each request; it answers with `status`."""

    status: int = 200
    got: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def post(self, request: web.Request) -> web.Response:
        body, headers = await request.read(), request.headers
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        mac = hmac.digest(b64decode(SECRET.removeprefix("whsec_")), signed, "sha256")
        assert headers["webhook-signature"] == f"v1,{b64encode(mac).decode()}"
        self.got.append((headers["webhook-id"], json.loads(body)))
        return web.Response(status=self.status, headers={"Location": "/elsewhere"})


class Clock(SystemClock):
    """The system's, ahead by `ahead`."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@dataclass
class Desk:
    world: World
    receiver: Receiver
    hooks: Hooks
    clock: Clock
    settings: dict[str, HookSettings]
    used_up: bool = False

    async def say(self, text: str, *, unattended: bool = False) -> None:
        async with self.world.database.transaction() as tx:
            session = await sessions.start(tx, self.world.principal, Label.OWNER, unattended=unattended)
            entry = AssistantText(text)
            await messages.say(tx, session, self.world.principal, entry, label=Label.OWNER, origin="web")
        await self.world.do("update messages set created_at = now() - interval '3 seconds'")


@pytest.fixture
async def desk(database: Database) -> AsyncIterator[Desk]:
    receiver, clock = Receiver(), Clock()
    app = web.Application()
    app.router.add_post("/hook", receiver.post)
    async with Served(app) as served:
        world = await found(database)
        settings = {"n8n": HookSettings(url=f"{served.root}/hook", secret=SecretStr(SECRET))}

        async def used_up() -> bool:
            return desk.used_up

        rules = Rules.of([served.root.removeprefix("http://")])
        hooks = Hooks(database, world.principal, lambda: settings, lambda: rules, used_up, str, clock)
        desk = Desk(world, receiver, hooks, clock, settings)
        yield desk


async def test_an_answer_is_told_once_by_its_number_and_with_its_words_if_they_are_chosen(desk: Desk) -> None:
    await desk.say("before")
    await desk.hooks.look()
    await desk.say("secret words")
    await desk.say("of a run", unattended=True)
    await desk.hooks.look()
    await desk.hooks.look()

    [(id, event)] = desk.receiver.got
    assert (event["type"], set(event["data"])) == ("answer.sent", {"message", "session"})
    assert id == f"answer.sent.{event['data']['message']}"

    desk.settings["n8n"] = desk.settings["n8n"].model_copy(update={"content": True})
    await desk.say("chosen words")
    await desk.hooks.look()
    assert desk.receiver.got[-1][1]["data"]["text"] == "chosen words"


async def test_what_is_not_taken_is_sent_again_under_the_same_id_and_given_up_at_last(desk: Desk) -> None:
    await desk.hooks.look()
    await desk.say("one")
    desk.receiver.status = 302
    await desk.hooks.look()
    await desk.hooks.look()
    assert len(desk.receiver.got) == 1, "it is not yet time"

    for pause in RETRIES:
        desk.clock.ahead += pause
        await desk.hooks.look()
    assert len({id for id, _ in desk.receiver.got}) == 1
    assert len(desk.receiver.got) == 1 + len(RETRIES)

    desk.receiver.status = 200
    await desk.say("two")
    await desk.hooks.look()
    assert len({id for id, _ in desk.receiver.got}) == 2


async def test_tasks_questions_and_budgets_are_told_too_and_only_what_is_asked_for(desk: Desk) -> None:
    await desk.hooks.look()
    owner = desk.world.principal
    await desk.world.do(
        """insert into tasks (id, master_id, kind, lane, principal_id, status, updated_at)
           select id, id, 'agent', 'agents', $1, 'failed', now() - interval '3 seconds'
           from (select gen_random_uuid() as id) each""",
        owner,
    )
    await desk.world.do(
        """insert into reviews (kind, principal_id, asked_id, tool, arguments, digest, preview, label, created_at)
           values ('approval', $1, $1, 'exec', '{}', 'd', 'run it?', 0, now() - interval '3 seconds')""",
        owner,
    )
    desk.used_up = True
    await desk.world.do("update meta set value = jsonb_set(value, '{marks,task.ended}', '\"2020-01-01T00:00:00Z\"')")
    await desk.hooks.look()
    await desk.hooks.look()

    kinds = [event["type"] for _, event in desk.receiver.got]
    assert sorted(kinds) == ["budget.reached", "review.asked", "task.ended"]
