"""People on Telegram who wait for each answer before they write again, and note how long it took."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from tests.fakes.telegram import FakeTelegram, Sent

ANSWER_WITHIN = 60.0


class _Sent(list[Sent]):
    """What the bot sent; the moment it arrives is what whoever waits in that chat gets."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, asyncio.Future[float]] = {}

    def append(self, sent: Sent) -> None:
        super().append(sent)
        waiting = self.waiting.pop(sent.chat, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(perf_counter())


@dataclass
class Talk:
    """Seconds each turn took, in the order they ended, and when: seconds from the start. No answer, no entry."""

    turns: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


class People:
    """A bot's chat partners; `telegram` is the server they and the bot meet on."""

    def __init__(self) -> None:
        self._sent = _Sent()
        self.telegram = FakeTelegram(light=True, sent=self._sent)
        self._number = 0

    async def say(self, chat: int) -> float | None:
        """Seconds from the message to its answer; None if there was none within a minute."""
        self._number += 1
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._sent.waiting[chat] = answer
        began = perf_counter()
        self.telegram.say(f"message mk{self._number}x", chat)
        try:
            return await asyncio.wait_for(answer, ANSWER_WITHIN) - began
        except TimeoutError:
            return None

    async def talk(self, chats: Sequence[int], turns: int) -> Talk:
        """All of them at once, so many turns each."""
        talk, began = Talk(), perf_counter()

        async def one(chat: int) -> None:
            for _ in range(turns):
                seconds = await self.say(chat)
                if seconds is not None:
                    talk.turns.append(seconds)
                    talk.ended.append(perf_counter() - began)

        await asyncio.gather(*map(one, chats))
        return talk
