"""Telegram away, silent, flooding, repeating itself, out of order, talking nonsense."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import dataclass

import pytest

from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import TOLD, Ledger, answered_after
from tests.chaos.people import Telegrammers, crowd
from tests.chaos.proxy import Proxy, Weather
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram, Foreign, Refusal, Update
from tests.journeys.process import FRIEND, OWNER, GatewayProcess, happens, until

ROUNDS = 10 if FULL else 2


@dataclass
class Scene:
    """A gateway that reaches Telegram over `proxy`."""

    process: GatewayProcess
    proxy: Proxy
    people: Telegrammers
    ledger: Ledger
    models: FakeModels

    @property
    def telegram(self) -> FakeTelegram:
        return self.people.telegram

    async def close(self, judge: Judge, fault: Fault, healed: float | None = None, tries: int = 1) -> None:
        settled = await self.ledger.settled(90)
        if healed is not None:
            self.ledger.recovery += await answered_after(self.process, healed)
        judge(fault, await self.ledger.count(self.people.said, tries=tries))
        assert settled
        assert self.process.running.returncode is None


@pytest.fixture
async def scene(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random
) -> AsyncIterator[Scene]:
    async with Proxy(("127.0.0.1", telegram.port)) as proxy:
        config = crowd(telegram, models)
        config["channels"]["telegram"]["api_base"] = f"http://127.0.0.1:{proxy.port}"
        process.configure(config)
        await process.start()
        yield Scene(process, proxy, Telegrammers(telegram, chance), Ledger(process, telegram), models)
        await process.close()


# --- out ---

LOSING: dict[str, Callable[[FakeTelegram], None]] = {
    "cut": lambda telegram: telegram.drop_response("sendMessage"),
    "5xx": lambda telegram: telegram.fault("sendMessage", 502, "Bad Gateway"),
    "nonsense": lambda telegram: telegram.fault("sendMessage", 200, "not what was asked for"),
    "silence": lambda telegram: telegram.withhold_response("sendMessage"),
}


@pytest.mark.fault(Fault.ACCEPTED_SILENT)
@pytest.mark.parametrize(
    "how", ["cut", *(pytest.param(how, marks=pytest.mark.chaos) for how in ("5xx", "nonsense", "silence"))]
)
async def test_a_send_without_a_receipt_is_not_repeated_and_told(scene: Scene, judge: Judge, how: str) -> None:
    for _ in range(ROUNDS if how != "silence" else 1):
        before = sum(sent.text in TOLD for sent in scene.telegram.sent)
        LOSING[how](scene.telegram)
        scene.people.say(OWNER)
        await scene.telegram.wait_for(
            lambda tg, before=before: sum(sent.text in TOLD for sent in tg.sent) > before,
            60,
        )
    scene.people.say(OWNER)
    await scene.close(judge, Fault.ACCEPTED_SILENT, tries=ROUNDS if how != "silence" else 1)


@pytest.mark.fault(Fault.TOO_FAST)
async def test_flood_control_is_obeyed_and_the_order_kept(scene: Scene, judge: Judge) -> None:
    def sends(telegram: FakeTelegram) -> int:
        return sum(method == "sendmessage" and int(call["chat_id"]) == OWNER for method, call in telegram.calls)

    scene.telegram.fault("sendMessage", 429, "Too Many Requests", retry_after=3)
    scene.people.command("/ping", OWNER)
    scene.people.command("/help", OWNER)
    await scene.telegram.wait_for(lambda tg: sends(tg) == 1)
    scene.people.command("/status", OWNER)
    await asyncio.sleep(2.0)
    asked = sends(scene.telegram)
    await scene.close(judge, Fault.TOO_FAST)
    assert asked == 1
    assert scene.telegram.sent[0].text.startswith("pong")


BUSY = (
    Refusal(429, "Too Many Requests: retry after 2", retry_after=2),
    Refusal(429, "Too Many Requests"),
    Refusal(429, "Too Many Requests", retry_after=0),
    Refusal(429, "Too Many Requests", retry_after="1"),
    Refusal(429, "Too Many Requests", retry_after=-5),
    Refusal(420, "FLOOD_WAIT_2"),
    Refusal(420, "FLOOD"),
    Refusal(408, "Request Timeout"),
    Refusal(409, "Conflict: terminated by other getUpdates request"),
    Refusal(401, "Unauthorized"),
    Refusal(404, "Not Found"),
    Foreign(429, "<html>slow down</html>", Retry_After="2"),
    Foreign(404, '{"message": "no Route matched with those values"}'),
    Foreign(403, "<html>blocked</html>"),
    Foreign(408, ""),
    Foreign(302, "", Location="https://portal.invalid/login"),
)


async def says_what_waits(scene: Scene) -> bool:
    async with scene.process.http() as client:
        return "waiting since" in (await client.get("/api/status")).json()["undelivered"].get("telegram", "")


@pytest.mark.fault(Fault.BUSY)
@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.chaos)])
async def test_a_busy_messenger_is_not_a_refusal(scene: Scene, judge: Judge, rounds: int) -> None:
    """Every answer meets some of them; then its chat sees all answers, each once, in the order they were given in."""
    refusals = scene.people.chance.sample(BUSY * rounds, 5 * rounds)
    answers = [*refusals, *[None] * len(refusals)]
    scene.people.chance.shuffle(answers)
    scene.telegram.refuse("sendMessage", refusals[0], *answers)
    for _ in range(rounds):
        for chat in scene.people.chats:
            scene.people.command("/ping", chat)
            scene.people.say(chat)
    await scene.telegram.wait_for(lambda tg: tg.faults_left("sendMessage") < len(answers) + 1)
    await until(lambda: says_what_waits(scene))
    if rounds > 1:
        await scene.telegram.wait_for(lambda tg: tg.faults_left("sendMessage") < len(answers) / 2, 200)
        await scene.process.restart()
    await scene.ledger.settled(240)
    dead = await scene.process.rows(
        "select error from outbox where state in ('failed', 'uncertain') and error <> 'interrupted by a restart'"
    )
    await scene.close(judge, Fault.BUSY, tries=len(refusals) + 1)
    assert [row["error"] for row in dead] == []
    for chat in scene.people.chats:
        parts = await scene.process.rows(
            "select platform_id::int as id from outbox o join addresses a on a.id = o.address_id"
            " where a.chat = $1 and platform_id is not null order by o.id",
            str(chat),
        )
        assert [row["id"] for row in parts] == sorted(row["id"] for row in parts)


@pytest.mark.chaos
@pytest.mark.fault(Fault.KICKED)
async def test_a_blocked_chat_gets_one_attempt_and_holds_up_nobody(scene: Scene, judge: Judge) -> None:
    scene.telegram.block(FRIEND)
    scene.telegram.say("hello mk9001x", FRIEND)
    await scene.telegram.wait_for(lambda tg: any(method == "sendmessage" for method, _ in tg.calls))
    for chat in (OWNER, OWNER + 2):
        scene.people.say(chat)
    await scene.close(judge, Fault.KICKED)
    [dead] = await scene.process.rows("select state, attempts from outbox where state = 'failed'")
    tried = [
        call for method, call in scene.telegram.calls if method == "sendmessage" and int(call["chat_id"]) == FRIEND
    ]
    assert (dead["state"], len(tried)) == ("failed", 1)


# --- away ---


@pytest.mark.chaos
@pytest.mark.fault(Fault.DISCONNECTED)
@pytest.mark.parametrize("how", ["refuse", "reset", "freeze", "late", "sliced"])
async def test_what_is_said_while_telegram_is_out_of_reach_is_answered_once(
    scene: Scene, judge: Judge, how: str
) -> None:
    await scene.people.go_on(1.0)
    match how:
        case "refuse":
            await scene.proxy.refuse()
        case "freeze":
            scene.proxy.freeze()
        case "late":
            scene.proxy.there = scene.proxy.back = Weather(delay=1.0)
        case "sliced":
            scene.proxy.there = scene.proxy.back = Weather(piece=5)
    end = time.monotonic() + (15.0 if FULL else 3.0)
    while time.monotonic() < end:
        await scene.people.go_on(1.0, pause=0.5)
        if how == "reset":
            scene.proxy.reset()
    scene.proxy.calm()
    if how == "refuse":
        await scene.proxy.listen()
    await scene.close(judge, Fault.DISCONNECTED, time.time())


@pytest.mark.chaos
@pytest.mark.fault(Fault.DISCONNECTED)
@pytest.mark.parametrize("code", [502, 429, 409])
async def test_polls_that_are_refused_are_asked_again(scene: Scene, judge: Judge, code: int) -> None:
    scene.telegram.fault("getUpdates", code, n=3, **({"retry_after": 2} if code == 429 else {}))
    await scene.people.go_on(1.0)
    await scene.close(judge, Fault.DISCONNECTED, tries=3)


# --- in ---


@pytest.mark.fault(Fault.DUPLICATE)
async def test_one_message_delivered_fifty_times_is_one_turn(scene: Scene, judge: Judge) -> None:
    once = scene.people.say(OWNER)
    for again in range(50):
        if again == 25:
            await scene.telegram.wait_for(lambda tg: bool(tg.sent))
        scene.telegram.push({"message": once.update["message"]})
    scene.people.say(OWNER)
    await scene.close(judge, Fault.DUPLICATE, tries=50)
    stored = await scene.process.rows("select id from messages where kind = 'user'")
    assert len(stored) == 2


@pytest.mark.chaos
@pytest.mark.fault(Fault.DUPLICATE)
async def test_duplicates_are_recognised_after_a_restart(scene: Scene, judge: Judge) -> None:
    once = scene.people.say(OWNER)
    await scene.telegram.wait_for(lambda tg: bool(tg.sent))
    await scene.process.restart()
    for _ in range(10):
        scene.telegram.push({"message": once.update["message"]})
    scene.people.say(OWNER)
    await scene.close(judge, Fault.DUPLICATE, tries=10)


@pytest.mark.fault(Fault.SHUFFLED)
async def test_updates_out_of_order_are_all_answered(scene: Scene, judge: Judge) -> None:
    for _ in range(ROUNDS):
        await scene.proxy.refuse()
        for _ in range(20):
            scene.people.say()
        scene.people.chance.shuffle(scene.telegram.pending)
        ids = sorted(update["update_id"] for update in scene.telegram.pending)
        for update, number in zip(scene.telegram.pending, ids, strict=True):
            update["update_id"] = number
        await scene.proxy.listen()
        assert await scene.ledger.settled(60)
    await scene.close(judge, Fault.SHUFFLED, tries=20 * ROUNDS)


@pytest.mark.fault(Fault.EDITED)
async def test_edits_reach_what_is_unread_and_orphan_nothing(scene: Scene, judge: Judge) -> None:
    scene.models.latency_ms, scene.people.tools = 700, 0.0
    first = scene.people.say(OWNER)
    await happens(scene.models.started)
    unread = scene.telegram.say("wrong mk901x", OWNER)
    scene.telegram.edit(unread, "right mk902x")
    scene.telegram.edit(first.update, "too late mk903x")
    scene.telegram.edit({"message": unread["message"] | {"message_id": 999_999}}, "of nothing mk904x")
    await scene.close(judge, Fault.EDITED, tries=3)
    texts = [
        row["text"] for row in await scene.process.rows("select text from messages where kind = 'user' order by id")
    ]
    assert texts[:2] == [f"message {first.key}", "right mk902x"]
    assert [text.partition("\n")[2] for text in texts[2:]] == ["too late mk903x"]
    assert scene.telegram.sent[-1].text.endswith(("fin902x", "fin903x"))


JUNK: tuple[object, ...] = (
    None,
    True,
    -1,
    2**63,
    1e308,
    "",
    "\0",
    "\ud800",
    "x" * 5000,
    [],
    [[]],
    {},
    {"id": None},
    "🦀",
)


def spoiled(update: Update, chance: random.Random) -> Update:
    """The update with some of its leaves replaced or gone."""
    copied: Update = json.loads(json.dumps(update))
    for _ in range(chance.randint(1, 3)):
        at: object = copied
        while isinstance(at, dict) and at:
            key = chance.choice(list(at))
            inner = at[key]
            if not isinstance(inner, dict) or chance.random() < 0.4:
                if chance.random() < 0.2:
                    del at[key]
                else:
                    at[key] = deepcopy(chance.choice(JUNK))  # the next round may reach into it
                break
            at = inner
    copied.pop("update_id", None)
    return copied


@pytest.mark.fault(Fault.GARBAGE)
async def test_malformed_updates_harm_no_other(scene: Scene, judge: Judge, chance: random.Random) -> None:
    who = {"id": 999, "first_name": "A"}
    entity = {"type": "bold", "offset": 0, "length": 9}
    message = {"message_id": 1, "date": 1, "text": "hello", "entities": [entity]}
    whole = {"message": message | {"chat": who | {"type": "private"}, "from": who | {"is_bot": False}}}
    tries = 3000 if FULL else 300
    for number in range(tries):
        scene.telegram.push(spoiled(whole, chance))
        if number % 100 == 0:
            scene.people.say()
    await scene.close(judge, Fault.GARBAGE, tries=tries)
