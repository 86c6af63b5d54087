"""What a program sees that writes while the database is away."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from gateway.domain.channels.routing import StartTurn
from gateway.domain.conversation.inbound import Inbound
from gateway.flow.inbound.persistence import Accepted
from tests.flow.path import MessagePath
from tests.web.conftest import BEARER, Running

QUESTION = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}


@dataclass
class Spooled:
    """An inbox that keeps what it gets until its database is `back`."""

    path: MessagePath | None = None
    back: asyncio.Event = field(default_factory=asyncio.Event)
    taken: asyncio.Event = field(default_factory=asyncio.Event)

    async def accept(self, batch: Sequence[Inbound]) -> tuple[Accepted, ...]:
        self.taken.set()
        return (Accepted(StartTurn(), later=asyncio.ensure_future(self._stored(batch))),)

    async def _stored(self, batch: Sequence[Inbound]) -> Accepted:
        await self.back.wait()
        assert self.path is not None
        [accepted] = await self.path.inbound.accept(batch)
        return accepted


async def asked(running: Running, url: str, body: dict[str, object]) -> httpx.Response:
    """The answer to a request that came while the database was away; it came back only then."""
    inbox = Spooled()
    started = await running.start(inbox=inbox)
    inbox.path = started.web.path
    asking = asyncio.create_task(started.web.client.post(url, json=body, headers=BEARER))
    await inbox.taken.wait()
    assert not asking.done()
    inbox.back.set()
    answer = await asking
    await started.stop()
    return answer


async def test_the_terminal_is_told_under_which_number_its_message_is_stored(running: Running) -> None:
    answer = await asked(running, "/api/messages", {"text": "hi", "client_id": "1"})
    assert answer.status_code == 202
    assert isinstance(answer.json()["inbox_id"], int)


async def test_a_client_of_openai_waits_for_its_answer(running: Running) -> None:
    answer = await asked(running, "/v1/chat/completions", QUESTION)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]
    assert "None" not in answer.json()["id"]


async def test_so_does_one_that_streams(running: Running) -> None:
    answer = await asked(running, "/v1/chat/completions", QUESTION | {"stream": True})
    assert answer.status_code == 200
    assert answer.text.rstrip().endswith("data: [DONE]")
    assert "error" not in answer.text
