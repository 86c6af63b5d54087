"""Killed at moments that chance picks, under a burst of messages over several chats."""

import asyncio
import random
from collections import Counter

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram, Sent
from tests.journeys.process import OWNER, GatewayProcess, configured, until

KILLS = 10
CHATS = range(OWNER, OWNER + 6)
NOTICE = "I was restarted while sending my last answer; /last shows it again."


class Talk:
    """People who keep writing, each message with a number of its own."""

    def __init__(self, telegram: FakeTelegram, chance: random.Random) -> None:
        self._telegram = telegram
        self._chance = chance
        self.said: list[int] = []

    def say(self) -> None:
        number = len(self.said) + 1
        tool = " with a tool" if self._chance.random() < 0.3 else ""
        self._telegram.say(f"message{tool} mk{number}x", self._chance.choice(CHATS))
        self.said.append(number)

    async def go_on(self, seconds: float) -> None:
        """Write every now and then for that long."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            self.say()
            await asyncio.sleep(self._chance.uniform(0.0, 0.15))


async def test_ten_kills_lose_nothing_and_say_nothing_twice(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"] = [str(chat) for chat in CHATS]
    process.configure(config)
    models.rules = [Rule("with a tool", tool_calls=(Call("write_file", {"path": "tea.md", "content": "green"}),))]
    models.latency_ms = 60
    chance = random.Random(20)
    talk = Talk(telegram, chance)
    for kill in range(KILLS):
        await process.spawn()
        if kill % 4 == 3:  # some die before they are ready
            await talk.go_on(chance.uniform(0.2, 1.0))
        else:
            await process.hears("ready")
            await talk.go_on(chance.uniform(0.1, 1.0))
        await process.kill()
    talk.say()
    await process.start()
    await everything_is_settled(process, telegram)

    await check_ledger(process, talk.said)
    await check_shown(process, telegram.sent)


async def everything_is_settled(process: GatewayProcess, telegram: FakeTelegram) -> None:
    """Long before a lease could expire: what was open is taken up at the start."""
    await telegram.wait_for(lambda tg: not tg.pending)

    async def nothing_is_open() -> bool:
        [left] = await process.rows(
            """select (select count(*) from messages where kind = 'user' and answered_by is null)
                    + (select count(*) from outbox where state in ('pending', 'sending')) as n"""
        )
        return bool(left["n"] == 0)

    await until(nothing_is_open, 20)
    assert await process.rows("select id from tasks where error = 'lease expired'") == []


async def check_ledger(process: GatewayProcess, said: list[int]) -> None:
    """Each message is stored once and answered; each call has one result; no transcript has a hole.

    The answer to a message whose every attempt was killed is that it has none.
    """
    users = await process.rows("select text from messages where kind = 'user'")
    assert sorted(int(row["text"].rpartition("mk")[2][:-1]) for row in users) == said
    failed = await process.rows("select error from tasks where status <> 'completed'")
    assert {row["error"] for row in failed} <= {"out of attempts"}
    holes = await process.rows(
        "select session_id from messages group by session_id having max(seq) <> count(*) or min(seq) <> 1"
    )
    assert holes == []
    unpaired = await process.rows(
        """select task_id, ordinal from messages where ordinal is not null group by task_id, ordinal
           having array_agg(kind order by seq) <> '{tool_intent,tool_result}'"""
    )
    assert unpaired == []


async def check_shown(process: GatewayProcess, sent: list[Sent]) -> None:
    """What was sent was shown once; what is uncertain at most once, and its chat was told."""
    seen = Counter((str(message.chat), message.text) for message in sent)
    parts = await process.rows("select chat, text, state from outbox o join addresses a on a.id = o.address_id")
    certain = Counter((part["chat"], part["text"]) for part in parts if part["state"] == "sent")
    uncertain = Counter((part["chat"], part["text"]) for part in parts if part["state"] == "uncertain")
    for what in certain | uncertain | seen:
        assert certain[what] <= seen[what] <= certain[what] + uncertain[what], what
    doubted = Counter(chat for chat, text in uncertain.elements() if text != NOTICE)
    told = Counter(part["chat"] for part in parts if part["text"] == NOTICE)
    assert told == doubted
