"""Channels that are opened, kept, replaced and shut."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from pydantic import Field

from gateway.domain.access import Access
from gateway.domain.channel import Accept
from gateway.domain.channel_settings import ChannelSettings
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.inbound import Inbound
from gateway.flow import doors as doors_module
from gateway.flow.doors import Doors, Opening, openings, preload
from tests.fakes.channel import FakeChannel
from tests.flow.path import MessagePath, in_turn, said


class Settings(ChannelSettings):
    token: str = Field("t")


@dataclass
class Doorway(FakeChannel):
    """Opens, breaks and closes as it is told."""

    opens: list[Exception | None] = field(default_factory=list)
    breaks: asyncio.Queue[Exception] = field(default_factory=asyncio.Queue)
    close_fails: bool = False
    receiving: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    opened: int = 0
    closed: int = 0
    accept: Accept | None = None

    async def open(self) -> None:
        self.opened += 1
        if self.opens and (problem := self.opens.pop(0)):
            self.refused.set()
            raise problem

    async def receive(self, accept: Accept) -> None:
        self.accept = accept
        self.receiving.put_nowait(None)
        raise await self.breaks.get()

    async def close(self) -> None:
        self.closed += 1
        if self.close_fails:
            raise RuntimeError("cannot close")


@dataclass
class House:
    """The doors, with what was made for each opening."""

    path: MessagePath
    doors: Doors
    group: asyncio.TaskGroup
    made: list[Doorway] = field(default_factory=list)
    got: list[Inbound] = field(default_factory=list)

    def opening(self, prepare: Callable[[Doorway], None] = lambda _: None, **settings: object) -> Opening:
        def make() -> Doorway:
            channel = Doorway()
            prepare(channel)
            self.made.append(channel)
            return channel

        return Opening(Settings.model_validate(settings), make)

    async def accept(self, batch: object) -> None: ...

    async def apply(self, **wanted: Opening) -> None:
        await self.doors.apply(wanted, self.accept, self.group)


@pytest.fixture
async def house(path: MessagePath) -> AsyncIterator[House]:
    path.outbound.abandon("fake")
    doors = Doors(path.outbound)
    async with asyncio.TaskGroup() as group:
        yield House(path, doors, group)
        await doors.shut()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors_module, "backoff", lambda _: 0.0)


async def test_a_wanted_channel_is_opened_and_receives(house: House) -> None:
    await house.apply(fake=house.opening())
    [channel] = house.made
    await channel.receiving.get()
    assert house.doors.channels == {"fake": channel}
    assert channel.accept == house.accept


async def test_one_that_breaks_is_closed_and_opened_again(house: House) -> None:
    await house.apply(fake=house.opening())
    [channel] = house.made
    for _ in range(2):
        await channel.receiving.get()
        channel.breaks.put_nowait(ConnectionError("gone"))
    await channel.receiving.get()
    assert (channel.opened, channel.closed, len(house.made)) == (3, 2, 1)


async def test_one_that_breaks_while_it_opens_or_closes_is_opened_again_too(house: House) -> None:
    def prepare(channel: Doorway) -> None:
        channel.opens, channel.close_fails = [RuntimeError("boom"), None], True

    await house.apply(fake=house.opening(prepare))
    [channel] = house.made
    await channel.receiving.get()
    assert (channel.opened, channel.closed) == (2, 1)


async def test_what_only_the_owner_can_mend_stays_shut_until_the_settings_change(house: House) -> None:
    def refuse(channel: Doorway) -> None:
        channel.opens = [OwnerMustAct("wrong token")]

    await house.apply(fake=house.opening(refuse))
    [channel] = house.made
    await channel.refused.wait()
    await house.apply(fake=house.opening(token="better"))
    await house.made[1].receiving.get()
    assert (channel.opened, channel.closed) == (1, 1)


async def test_nothing_is_sent_through_a_door_that_is_not_open(house: House) -> None:
    path, gate = house.path, asyncio.Event()
    path.model.answer = in_turn(said("hello"))
    await path.tell("go")
    await path.turns.run(await path.claim())

    class Slow(Doorway):
        async def open(self) -> None:
            await gate.wait()

    slow = Slow()
    await house.apply(fake=Opening(Settings(), lambda: slow))
    sender = asyncio.create_task(path.outbound.run())
    await path.outbound.drain(5)
    assert slow.asked == 0
    gate.set()
    assert await slow.until(bool) == ["hello"]
    sender.cancel()
    await asyncio.wait([sender])


async def test_other_settings_mean_another_channel(house: House) -> None:
    await house.apply(fake=house.opening())
    await house.made[0].receiving.get()
    await house.apply(fake=house.opening(token="new"))
    old, new = house.made
    await new.receiving.get()
    assert (old.closed, new.closed) == (1, 0)
    assert house.doors.channels == {"fake": new}


async def test_another_allow_list_keeps_the_channel(house: House) -> None:
    await house.apply(fake=house.opening())
    await house.made[0].receiving.get()
    opening = house.opening(allow=[7], access="pairing")
    await house.apply(fake=opening)
    assert opening.access == Access("pairing", frozenset({"7"}))
    assert (len(house.made), house.made[0].closed) == (1, 0)


async def test_what_is_no_longer_wanted_is_shut(house: House) -> None:
    await house.apply(fake=house.opening(), other=house.opening())
    fake, other = house.made
    for channel in (fake, other):
        await channel.receiving.get()
    await house.apply(other=house.opening())
    assert (fake.closed, other.closed) == (1, 0)
    assert list(house.doors.channels) == ["other"]


async def test_a_stop_takes_nothing_more_in_and_still_sends(house: House) -> None:
    await house.apply(fake=house.opening())
    [channel] = house.made
    await channel.receiving.get()
    await house.doors.stop_receiving()
    path = house.path
    async with path.working():
        await path.ask("hello")
        assert await channel.until(bool) == ["re: hello"]
    assert channel.closed == 0


async def test_stopping_without_doors_is_easy(path: MessagePath) -> None:
    doors = Doors(path.outbound)
    await doors.stop_receiving()
    await doors.shut()
    assert doors.channels == {}


def test_configured_channels_become_openings() -> None:
    menu = [("ping", "is it alive")]
    opened = openings({"telegram": {"token": "123456:" + "a" * 35, "allow": [5]}, "slack": {}}, menu)
    assert list(opened) == ["telegram"]
    assert opened["telegram"].access == Access("allowlist", frozenset({"5"}))
    assert opened["telegram"].make().name == "telegram"
    with pytest.raises(ConfigError):
        openings({"telegarm": {}}, menu)


def test_what_channels_need_is_imported_beforehand() -> None:
    preload(["telegram", "slack", "nonsense"])
    assert "aiogram" in sys.modules
