"""The model refuses, hangs, is cut off in mid-answer, or says what cannot be read."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.chaos.conftest import Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger
from tests.chaos.people import Telegrammers, crowd
from tests.chaos.proxy import Proxy, Weather
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, happens

NO_MODEL = "No model could answer."
GARBLED = (
    Rule(tool_calls=(Call("write_file", "[]"),)),
    Rule(tool_calls=(Call("no_such_tool", {}),)),
    Rule(tool_calls=(Call("", "null"),)),
    Rule(tool_calls=(Call("write_file", {"path": "../../etc/x", "content": 5}),)),
    Rule(text="", times=1),
    Rule(text="  \n", times=1),
)


@dataclass
class Scene:
    """A gateway with two models, both behind `proxy`."""

    process: GatewayProcess
    proxy: Proxy
    people: Telegrammers
    ledger: Ledger
    models: FakeModels

    @property
    def telegram(self) -> FakeTelegram:
        return self.people.telegram

    async def ask(self, *rules: Rule) -> list[str]:
        """What the owner sees after one message, with these rules in force."""
        self.models.reset()
        self.models.rules = list(rules)
        before = len(self.telegram.sent)
        self.people.say(OWNER)
        await self.telegram.wait_for(lambda tg: len(tg.sent) > before, 90)
        assert await self.ledger.settled(60)
        return [sent.text for sent in self.telegram.sent[before:]]

    async def close(self, judge: Judge, fault: Fault, tries: int) -> None:
        self.models.rules = []
        self.people.say(OWNER)
        assert await self.ledger.settled(60)
        judge(fault, await self.ledger.count(self.people.said, tries=tries))
        assert self.process.running.returncode is None
        assert self.telegram.sent[-1].text.endswith(f"fin{self.people.numbers}x")


@pytest.fixture
async def scene(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random
) -> AsyncIterator[Scene]:
    async with Proxy(("127.0.0.1", int(models.url.rpartition(":")[2]))) as proxy:
        config = crowd(telegram, models)
        config["models"]["providers"]["openai"]["base_url"] = f"http://127.0.0.1:{proxy.port}/v1"
        config["models"]["fallbacks"] = ["openai/gpt-4o"]
        models.latency_ms = 0
        process.configure(config)
        await process.start()
        people = Telegrammers(telegram, chance, tools=0.0)
        yield Scene(process, proxy, people, Ledger(process, telegram), models)
        await process.close()


@pytest.mark.chaos
@pytest.mark.fault(Fault.MODEL_REFUSES)
async def test_a_refusal_is_made_good_by_a_retry_or_the_next_model(scene: Scene, judge: Judge) -> None:
    assert (await scene.ask(Rule(status=429, times=1)))[0].endswith("fin1x")
    assert (await scene.ask(Rule(status=429, headers={"retry-after": "1"}, times=1)))[0].endswith("fin2x")
    await scene.close(judge, Fault.MODEL_REFUSES, 2)


@pytest.mark.chaos
@pytest.mark.fault(Fault.MODEL_REFUSES)
@pytest.mark.parametrize(
    "rule",
    [
        Rule(status=500, times=2),
        Rule(status=503, plain_error="overloaded", times=3),
        Rule(raw="data: {not json\n\n", times=2),
        Rule(raw="<html>502 Bad Gateway</html>", times=2),
        Rule(raw="", times=2),
    ],
    ids=["500", "503", "garbage", "html", "nothing"],
)
async def test_a_failure_that_passes_is_made_good(scene: Scene, judge: Judge, rule: Rule) -> None:
    assert [text.split()[-1] for text in await scene.ask(rule)] == ["fin1x"]
    await scene.close(judge, Fault.MODEL_REFUSES, 1)


@pytest.mark.chaos
@pytest.mark.fault(Fault.MODEL_REFUSES)
@pytest.mark.parametrize("status", [400, 500])
async def test_models_that_all_fail_are_told_in_one_message(scene: Scene, judge: Judge, status: int) -> None:
    [told] = await scene.ask(Rule(status=status))
    assert told.startswith(NO_MODEL)
    assert "mock-model" in told
    assert "gpt-4o" in told
    await asyncio.sleep(1)
    await scene.close(judge, Fault.MODEL_REFUSES, 1)


@pytest.mark.fault(Fault.MODEL_CUT)
@pytest.mark.parametrize(
    "how", ["reset", pytest.param("cut", marks=pytest.mark.chaos), pytest.param("slow", marks=pytest.mark.chaos)]
)
async def test_an_answer_that_breaks_off_is_shown_whole_and_once(scene: Scene, judge: Judge, how: str) -> None:
    scene.models.chunk_ms, scene.models.filler_words = 150, 60
    match how:
        case "cut":
            shown = await scene.ask(Rule(text="one two three four five six seven fin1x", cut=2, times=1))
        case "reset":
            breaking = asyncio.create_task(_reset_in_mid_answer(scene))
            shown = await scene.ask()
            await breaking
        case _:
            scene.proxy.back = Weather(piece=16, rate=2000)
            shown = await scene.ask()
    assert [text.split()[-1] for text in shown] == ["fin1x"]
    scene.models.chunk_ms = 0
    scene.proxy.calm()
    await scene.close(judge, Fault.MODEL_CUT, 1)


async def _reset_in_mid_answer(scene: Scene) -> None:
    await happens(scene.models.started)
    await asyncio.sleep(0.3)
    scene.proxy.reset()


@pytest.mark.fault(Fault.MODEL_GARBLED)
@pytest.mark.parametrize(
    "rule",
    [
        Rule(tool_calls=(Call("write_file", '{"path": "te'),)),
        *(pytest.param(rule, marks=pytest.mark.chaos) for rule in GARBLED),
    ],
    ids=["torn", "list", "unknown", "nameless", "mistyped", "empty", "blank"],
)
async def test_a_garbled_reply_is_repaired_or_told(scene: Scene, judge: Judge, rule: Rule) -> None:
    shown = await scene.ask(rule)
    assert len(shown) == 1
    assert shown[0].strip()
    await scene.close(judge, Fault.MODEL_GARBLED, 1)


@pytest.mark.fault(Fault.MODEL_HANGS)
@pytest.mark.parametrize(
    "rule",
    [pytest.param(Rule("mk1x", hang=True), marks=pytest.mark.chaos), Rule("mk1x", text="half an answer", stall=1)],
    ids=["silent", "stalled"],
)
async def test_a_model_that_hangs_is_stopped_by_stop_and_holds_up_nobody(
    scene: Scene, judge: Judge, rule: Rule
) -> None:
    scene.models.rules = [rule]
    scene.people.say(OWNER)
    await happens(scene.models.started)
    other = scene.people.say(OWNER + 1)
    await scene.telegram.wait_for(lambda tg: any(sent.chat == other.chat for sent in tg.sent))
    began = time.monotonic()
    scene.people.command("/stop", OWNER)
    await scene.telegram.wait_for(lambda tg: any(sent.text.startswith("Stopped") for sent in tg.sent))
    scene.ledger.recovery.append(time.monotonic() - began)
    await asyncio.wait_for(scene.models.dropped.wait(), 10)
    await scene.close(judge, Fault.MODEL_HANGS, 1)
