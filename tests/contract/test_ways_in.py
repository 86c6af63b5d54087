"""Every way in passes this suite, through a whole gateway; a new one adds its adapter to `WAYS_IN`."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.domain.conversation.model import ModelsExhausted
from gateway.store.connection.pool import Database
from tests.contract.ways_in import Api, Browser, Telegram, Terminal, WayIn
from tests.web.conftest import Running, Started
from tests.web.scripted import ScriptedModel, Wait

KINDS = [
    ("notes.txt", "text/plain", b"words of a file"),
    ("broken.pdf", "application/pdf", b"%PDF-1.4 and no more"),
    ("broken.png", "image/png", b"\x89PNG\r\n\x1a\n and no more"),
    ("data.bin", "application/octet-stream", bytes(range(256)) * 1000),
    ("../../escape.txt", "text/plain", b"words of a file"),
]
ODD = ["a\x00b", "\u202ertl \u200b\ufeff", "<b>*_`[](" * 1000]

WAYS_IN = {"telegram": Telegram, "web": Browser, "terminal": Terminal, "api": Api}


@dataclass
class Gateway:
    """One that can be killed and started again on the same database, with the same person at the other end."""

    running: Running
    way: WayIn
    started: Started

    @property
    def model(self) -> ScriptedModel:
        return self.started.web.model

    async def restart(self) -> None:
        await self.stop()
        before = self.started.web
        self.started = await self.running.start(port=before.port, instance=before.path.instance)
        await self.way.connect(self.started.web)

    async def stop(self) -> None:
        await self.way.leave()
        await self.started.stop()

    async def hang_on(self, text: str) -> Wait:
        """Say something that the model does not finish answering before it is let go."""
        middle = Wait()
        self.model.says("half", middle, " and half")
        assert await self.way.say(text)
        async with asyncio.timeout(10):
            await middle.reached.wait()
        return middle

    async def stored(self) -> list[str]:
        """All that was taken from people, in order."""
        rows = await self.started.web.path.rows(
            "select coalesce(m.text, i.text) from inbox i left join messages m on m.id = i.message_id order by i.id"
        )
        return [text for (text,) in rows]


@pytest.fixture
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


@pytest.fixture(params=list(WAYS_IN.values()), ids=list(WAYS_IN))
def way(request: pytest.FixtureRequest, group: asyncio.TaskGroup) -> WayIn:
    return request.param(group)


@pytest.fixture
async def gateway(database: Database, tmp_path: Path, group: asyncio.TaskGroup, way: WayIn) -> AsyncIterator[Gateway]:
    running = Running(database, tmp_path, group)
    started = await running.start()
    await way.connect(started.web)
    gateway = Gateway(running, way, started)
    yield gateway
    await gateway.stop()


async def test_a_message_is_answered_once(way: WayIn, gateway: Gateway) -> None:
    await way.say("hello")
    await way.answers("re: hello")
    await way.say("again")
    assert await way.answers("re: again") == ["re: hello", "re: again"]
    assert len(gateway.model.prompts) == 2


async def test_a_message_that_comes_again_is_the_same_message(way: WayIn, gateway: Gateway) -> None:
    await way.say("hello", id=7)
    await way.say("hello", id=7)
    await way.answers("re: hello")
    for _ in range(50):
        await way.say("hello", id=7)
    await gateway.restart()
    await way.say("hello", id=7)
    await way.say("again", id=8)
    assert await way.answers("re: again") == ["re: hello", "re: again"]
    assert len(gateway.model.prompts) == 1
    assert await gateway.stored() == ["hello", "again"]


async def test_messages_right_behind_each_other_are_all_answered_in_order(way: WayIn, gateway: Gateway) -> None:
    first = await gateway.hang_on("number 0")
    texts = [f"number {number}" for number in range(1, 6)]
    for text in texts:
        await way.say(text)
    first.over.set()
    answers = await way.answers(texts[-1])
    assert re.findall(r"number \d", " ".join(answers)) in (texts, ["number 0", *texts])
    assert await gateway.stored() == ["number 0", *texts]


async def test_a_command_is_answered_without_the_model(way: WayIn, gateway: Gateway) -> None:
    await way.say("/help")
    assert len(await way.answers("/status: ")) == 1
    assert gateway.model.prompts == []


async def test_a_command_does_not_wait_for_a_turn(way: WayIn, gateway: Gateway) -> None:
    middle = await gateway.hang_on("hello")
    await way.say("/help")
    await way.answers("/status: ")
    middle.over.set()
    assert len(await way.answers("half and half")) == 2


async def test_an_unknown_command_is_ignored(way: WayIn, gateway: Gateway) -> None:
    await way.say("/nonsense")
    await way.say("hello")
    assert await way.answers("re: hello") == ["re: hello"]
    assert len(gateway.model.prompts) == 1
    assert await gateway.stored() == ["hello"]


async def test_a_text_that_only_looks_like_a_command_is_a_message(way: WayIn, gateway: Gateway) -> None:
    await way.say("/etc/passwd what is in it?")
    assert await way.answers("re: /etc") == ["re: /etc/passwd what is in it?"]


async def test_a_model_that_fails_is_explained_once(way: WayIn, gateway: Gateway) -> None:
    gateway.model.says("I th", ModelsExhausted("No model could answer. Set a key.", ()))
    await way.say("hello")
    await way.answers("Set a key.")
    gateway.model.says("Here I am.")
    await way.say("again")
    assert await way.answers("Here") == ["No model could answer. Set a key.", "Here I am."]


async def test_a_megabyte_is_answered_or_refused(way: WayIn, gateway: Gateway) -> None:
    taken = await way.say("x" * 1_000_000)
    if taken:
        await way.answers("re: xxx")
    await way.say("hello")
    assert len(await way.answers("re: hello")) == 1 + taken
    assert [len(text) for text in await gateway.stored()] == [1_000_000] * taken + [5]
    assert all(len(message.text) < 100_000 for message in gateway.model.prompts[-1].messages)


@pytest.mark.parametrize("text", ODD, ids=["NUL", "invisible", "markup"])
async def test_an_odd_text_is_answered_or_refused(way: WayIn, gateway: Gateway, text: str) -> None:
    await way.say(text)
    await way.say("hello")
    await way.answers("hello")
    assert (await gateway.stored())[-1] == "hello"


@pytest.mark.parametrize(("name", "mime", "data"), KINDS, ids=[name for name, *_ in KINDS])
async def test_a_file_comes_with_its_message_byte_for_byte(
    way: WayIn, gateway: Gateway, name: str, mime: str, data: bytes
) -> None:
    await way.say_with_file("look at this", data, name, mime)
    await way.answers("look at this")
    path = gateway.started.web.path
    [(kept, text)] = await path.rows(
        """select f.path, m.text from attachments a join files f on f.id = a.file_id
           join messages m on m.id = a.message_id"""
    )
    assert text == "look at this"
    assert (path.workspace / kept).read_bytes() == data
    assert (path.workspace / kept).resolve().is_relative_to((path.workspace / "uploads").resolve())


async def test_what_nobody_can_read_is_refused(way: WayIn, gateway: Gateway) -> None:
    await way.say_nonsense()
    await way.say("hello")
    assert await way.answers("re: hello") == ["re: hello"]
    assert await gateway.stored() == ["hello"]


async def test_a_stranger_gets_nothing(way: WayIn, gateway: Gateway) -> None:
    await way.stranger_says("let me in")
    await way.stranger_says("/help")
    await way.say("hello")
    assert await way.answers("re: hello") == ["re: hello"]
    assert await gateway.stored() == ["hello"]
    assert await gateway.started.web.path.rows("select count(*) from principals") == [(1,)]


async def test_stop_ends_a_turn_that_hangs(way: WayIn, gateway: Gateway) -> None:
    await gateway.hang_on("hello")
    await way.say("/stop")
    await way.answers("Stopped.")
    async with asyncio.timeout(10):
        await gateway.started.web.path.worker.settle()
    gateway.model.says("Here I am.")
    await way.say("again")
    *stopped, again = await way.answers("Here")
    # Where the transcript is shown, what was said until then stays.
    assert (set(stopped) - {"half"}, again) == ({"Stopped."}, "Here I am.")


async def test_what_was_said_before_a_restart_is_answered_after_it(way: WayIn, gateway: Gateway) -> None:
    await gateway.hang_on("hello")
    await gateway.restart()
    await way.answers("re: hello")
    await way.say("again")
    assert await way.answers("re: again") == ["re: hello", "re: again"]
    assert await gateway.stored() == ["hello", "again"]
