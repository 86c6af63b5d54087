"""Channels that are opened, kept, replaced and shut."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import Field

from gateway.domain.channels.channel import Accept, Capabilities, Login, NoFacts
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.health import ChannelVitals
from gateway.domain.people.access import Access
from gateway.domain.settings import ChannelSettings
from gateway.flow.channels import supervisor as doors_module
from gateway.flow.channels.supervisor import ChannelSpec, ChannelSupervisor, channel_specs, preload
from tests.fakes.channel import FakeChannel
from tests.fakes.eventually import eventually
from tests.flow.path import MessagePath, in_turn, message, said


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
    channel_manager: ChannelSupervisor
    group: asyncio.TaskGroup
    told: list[str]
    made: list[Doorway] = field(default_factory=list)
    got: list[Inbound] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    now: float = 1000.0

    def spec(self, prepare: Callable[[Doorway], None] = lambda _: None, **settings: object) -> ChannelSpec:
        def make() -> Doorway:
            channel = Doorway()
            prepare(channel)
            self.made.append(channel)
            return channel

        return ChannelSpec(Settings.model_validate(settings), make)

    async def accept(self, batch: Sequence[Inbound]) -> None:
        await self.open.wait()
        self.got.extend(batch)

    async def apply(self, **wanted: ChannelSpec) -> None:
        await self.channel_manager.apply(wanted, self.accept, self.group)


@pytest.fixture
async def house(path: MessagePath) -> AsyncIterator[House]:
    path.outbound.abandon("fake")
    async with asyncio.TaskGroup() as group:
        told: list[str] = []

        async def tell_owner(text: str) -> None:
            told.append(text)

        house = House(
            path,
            ChannelSupervisor(
                path.outbound, tell_owner, path.channel_leases, path.signals, monotonic=lambda: house.now
            ),
            group,
            told,
        )
        house.open.set()
        yield house
        await house.channel_manager.shut()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors_module, "backoff", lambda _: 0.0)


async def test_a_wanted_channel_is_opened_and_receives(house: House) -> None:
    await house.apply(fake=house.spec())
    [channel] = house.made
    await channel.receiving.get()
    assert house.channel_manager.channels == {"fake": channel}
    assert channel.accept is not None
    await channel.accept([message("hello")])
    assert [inbound.text for inbound in house.got] == ["hello"]


async def test_one_that_breaks_is_closed_and_opened_again(house: House) -> None:
    await house.apply(fake=house.spec())
    [channel] = house.made
    for _ in range(2):
        await channel.receiving.get()
        channel.breaks.put_nowait(ConnectionError("gone"))
    await channel.receiving.get()
    assert (channel.opened, channel.closed, len(house.made)) == (3, 2, 1)


async def test_one_that_breaks_while_it_opens_or_closes_is_opened_again_too(house: House) -> None:
    def prepare(channel: Doorway) -> None:
        channel.opens, channel.close_fails = [RuntimeError("boom"), None], True

    await house.apply(fake=house.spec(prepare))
    [channel] = house.made
    await channel.receiving.get()
    assert (channel.opened, channel.closed) == (2, 1)


async def test_what_only_the_owner_can_mend_stays_shut_until_the_settings_change(house: House) -> None:
    def refuse(channel: Doorway) -> None:
        channel.opens = [OwnerMustAct("wrong token")]

    await house.apply(fake=house.spec(refuse))
    [channel] = house.made
    await channel.refused.wait()
    await house.apply(fake=house.spec(token="better"))
    await house.made[1].receiving.get()
    assert (channel.opened, channel.closed) == (1, 1)


async def test_the_owner_is_told_of_what_only_he_can_mend(house: House) -> None:
    await house.apply(fake=house.spec(lambda channel: channel.opens.append(OwnerMustAct("wrong token"))))
    await house.made[0].refused.wait()
    await eventually(lambda: house.told == ["fake has stopped working; refused: wrong token"])
    assert house.channel_manager.states == {"fake": "refused: wrong token"}


class LinkedDoorway(Doorway):
    """Waits for a login once its account is gone."""

    trouble = ""

    def login(self) -> Login:
        return Login("waiting")

    async def request_code(self, phone: str) -> str:
        return phone

    async def logout(self) -> None: ...


async def test_a_channel_that_waits_for_a_login_is_opened_again_and_its_trouble_is_told_once(house: House) -> None:
    linked = LinkedDoorway(opens=[OwnerMustAct("unlinked"), OwnerMustAct("unlinked")])
    await house.channel_manager.apply({"fake": ChannelSpec(Settings(), lambda: linked)}, house.accept, house.group)
    await linked.receiving.get()
    assert (linked.opened, linked.closed, house.told) == (3, 2, ["fake has stopped working; refused: unlinked"])
    linked.trouble = "waits for a login"
    assert house.channel_manager.states == {"fake": "waits for a login"}


async def test_nothing_is_sent_through_a_door_that_is_not_open(house: House) -> None:
    path, gate = house.path, asyncio.Event()
    path.model.answer = in_turn(said("hello"))
    await path.tell("go")
    await path.turns.run(await path.claim())

    class Slow(Doorway):
        async def open(self) -> None:
            await gate.wait()

    slow = Slow()
    await house.apply(fake=ChannelSpec(Settings(), lambda: slow))
    sender = asyncio.create_task(path.outbound.run())
    await path.outbound.drain(5)
    assert slow.asked == 0
    gate.set()
    assert await slow.until(bool) == ["hello"]
    sender.cancel()
    await asyncio.wait([sender])


async def test_other_settings_mean_another_channel(house: House) -> None:
    await house.apply(fake=house.spec())
    await house.made[0].receiving.get()
    await house.apply(fake=house.spec(token="new"))
    old, new = house.made
    await new.receiving.get()
    assert (old.closed, new.closed) == (1, 0)
    assert house.channel_manager.channels == {"fake": new}


async def test_a_channel_that_cannot_be_made_takes_no_other_down(house: House) -> None:
    def refuse() -> Doorway:
        raise ConfigError("no such door")

    await house.apply(fake=house.spec())
    await house.made[0].receiving.get()
    with pytest.raises(ConfigError, match="no such door"):
        await house.apply(fake=house.spec(token="new"), other=ChannelSpec(Settings(), refuse))
    assert house.made[0].closed == 0
    assert house.channel_manager.channels == {"fake": house.made[0]}


async def test_another_allow_list_keeps_the_channel(house: House) -> None:
    await house.apply(fake=house.spec())
    await house.made[0].receiving.get()
    spec = house.spec(allow=[7], access="pairing")
    await house.apply(fake=spec)
    assert spec.access == Access("pairing", frozenset({"7"}))
    assert (len(house.made), house.made[0].closed) == (1, 0)


async def test_what_is_no_longer_wanted_is_shut(house: House) -> None:
    await house.apply(fake=house.spec(), other=house.spec())
    fake, other = house.made
    for channel in (fake, other):
        await channel.receiving.get()
    await house.apply(other=house.spec())
    assert (fake.closed, other.closed) == (1, 0)
    assert list(house.channel_manager.channels) == ["other"]


def heard_every(seconds: float) -> Callable[[Doorway], None]:
    def prepare(channel: Doorway) -> None:
        channel.capabilities = Capabilities(max_text=4096, silence=seconds)

    return prepare


async def test_a_channel_that_is_silent_for_too_long_is_closed_and_opened_again(house: House) -> None:
    await house.apply(fake=house.spec(heard_every(60)))
    [channel] = house.made
    await channel.receiving.get()
    house.now += 60
    assert house.channel_manager.silent() == {}
    house.now += 1
    assert house.channel_manager.silent() == {"fake": 61}
    await house.channel_manager.reopen_silent()
    await channel.receiving.get()
    assert (channel.opened, channel.closed) == (2, 1)
    assert house.channel_manager.silent() == {}
    assert house.channel_manager.states == {"fake": "deaf: nothing heard since it was opened again"}
    channel.heard_at = house.now
    house.now += 60
    assert house.channel_manager.vitals == {"fake": ChannelVitals("open", 60)}


async def test_what_the_platform_answers_or_brings_ends_a_silence(house: House) -> None:
    await house.apply(fake=house.spec(heard_every(60)))
    [channel] = house.made
    await channel.receiving.get()
    house.now += 50
    channel.heard_at = house.now
    house.now += 50
    assert house.channel_manager.silent() == {}
    assert channel.accept is not None
    await channel.accept([message("hello")])
    house.now += 50
    assert house.channel_manager.silent() == {}
    house.now += 50
    assert house.channel_manager.silent() == {"fake": 100}


async def test_no_silence_counts_while_what_came_is_being_accepted(house: House) -> None:
    await house.apply(fake=house.spec(heard_every(60)))
    [channel] = house.made
    await channel.receiving.get()
    assert channel.accept is not None
    house.open.clear()
    accepting = asyncio.ensure_future(channel.accept([message("hello")]))
    await asyncio.sleep(0)
    house.now += 10_000
    assert house.channel_manager.silent() == {}
    house.open.set()
    await accepting
    assert house.channel_manager.silent() == {}


async def test_a_platform_that_stays_silent_is_asked_ever_less_often(house: House) -> None:
    await house.apply(fake=house.spec(heard_every(60)))
    [channel] = house.made
    for patience in (60, 120, 240, 480, 480):
        await channel.receiving.get()
        house.now += patience
        assert house.channel_manager.silent() == {}
        house.now += 1
        assert house.channel_manager.silent() == {"fake": patience + 1}
        await house.channel_manager.reopen_silent()
    await channel.receiving.get()
    channel.heard_at = house.now
    house.now += 61
    assert house.channel_manager.silent() == {"fake": 61}


async def test_one_whose_silence_says_nothing_is_never_silent(house: House) -> None:
    await house.apply(fake=house.spec())
    await house.made[0].receiving.get()
    house.now += 10_000
    assert house.channel_manager.silent() == {}
    assert house.channel_manager.vitals == {"fake": ChannelVitals("open", None)}


async def test_a_door_that_is_not_receiving_cannot_be_silent_or_reopened(house: House) -> None:
    await house.apply(fake=house.spec(heard_every(60)))
    [channel] = house.made
    await channel.receiving.get()
    await house.channel_manager.stop_receiving()
    house.now += 1000
    assert house.channel_manager.silent() == {}
    await house.channel_manager.reopen_silent()
    assert (channel.opened, channel.closed) == (1, 0)


async def test_a_timeout_of_the_channel_itself_is_a_defect_and_no_silence(house: House) -> None:
    await house.apply(fake=house.spec(heard_every(60)))
    [channel] = house.made
    await channel.receiving.get()
    channel.breaks.put_nowait(TimeoutError("its own"))
    await channel.receiving.get()
    assert house.channel_manager.states == {"fake": "connecting"}
    assert channel.opened == 2


async def test_a_channel_that_never_finishes_closing_is_opened_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors_module, "CLOSE_SECONDS", 0.01)

    class Stuck(Doorway):
        async def close(self) -> None:
            await asyncio.Event().wait()

    stuck = Stuck(capabilities=Capabilities(max_text=4096, silence=60))
    await house.apply(fake=ChannelSpec(Settings(), lambda: stuck))
    await stuck.receiving.get()
    house.now += 61
    await house.channel_manager.reopen_silent()
    await stuck.receiving.get()
    assert stuck.opened == 2


async def test_a_stop_takes_nothing_more_in_and_still_sends(house: House) -> None:
    await house.apply(fake=house.spec())
    [channel] = house.made
    await channel.receiving.get()
    await house.channel_manager.stop_receiving()
    path = house.path
    async with path.working():
        await path.ask("hello")
        assert await channel.until(bool) == ["re: hello"]
    assert channel.closed == 0


async def test_stopping_without_doors_is_easy(path: MessagePath) -> None:
    channel_manager = ChannelSupervisor(path.outbound, path.notices.tell_owner, path.channel_leases, path.signals)
    await channel_manager.stop_receiving()
    await channel_manager.shut()
    assert channel_manager.channels == {}


def test_configured_channels_become_openings() -> None:
    menu = [("ping", "is it alive")]
    sections = {"telegram": {"token": "123456:" + "a" * 35, "allow": [5]}, "slack": {"enabled": False}}
    opened = channel_specs(sections, menu, Path("data"), lambda _: NoFacts())
    assert list(opened) == ["telegram"]
    assert opened["telegram"].access == Access("allowlist", frozenset({"5"}))
    assert opened["telegram"].make().name == "telegram"
    with pytest.raises(ConfigError):
        channel_specs({"telegarm": {}}, menu, Path("data"), lambda _: NoFacts())


def test_what_channels_need_is_imported_beforehand() -> None:
    preload(["telegram", "slack", "nonsense"])
    assert {"channels.telegram", "slack_sdk.web.async_client"} <= set(sys.modules)


async def test_what_breaks_after_it_had_been_open_for_a_while_is_tried_again_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(doors_module, "backoff", lambda failures: counted.append(failures) or 0.0)
    await house.apply(fake=house.spec())
    [channel] = house.made
    for seconds in (0, 0, 3600, 0, 3600):
        await channel.receiving.get()
        house.now += seconds
        channel.breaks.put_nowait(ConnectionError("gone"))
    await channel.receiving.get()
    assert counted[::2] == [1, 2, 1, 2, 1]


class TestStuck:
    async def test_a_channel_that_receives_breaks_or_is_shut_for_its_owner_to_mend_is_not(self, house: House) -> None:
        receives, shut = Doorway(), Doorway(opens=[OwnerMustAct("the token is wrong")])
        broken = Doorway(opens=[ConnectionError("the messenger is away")])
        channels = {"a": receives, "b": shut, "c": broken}
        await house.apply(**{name: ChannelSpec(Settings(), lambda made=made: made) for name, made in channels.items()})
        await receives.receiving.get()
        for refused in (shut, broken):
            await refused.refused.wait()
        house.now += 100_000
        assert house.channel_manager.stuck() == {}
        await house.channel_manager.stop_receiving()
        assert house.channel_manager.stuck() == {}

    async def test_one_that_does_not_come_back_from_opening_is(self, house: House) -> None:
        class Endless(Doorway):
            async def open(self) -> None:
                self.refused.set()
                await asyncio.Event().wait()

        endless = Endless()
        await house.apply(fake=ChannelSpec(Settings(), lambda: endless))
        await endless.refused.wait()
        assert house.channel_manager.stuck() == {}
        house.now += 121
        assert house.channel_manager.stuck() == {"fake": "it does not come back from opening"}

    async def test_one_that_nobody_supervises_any_more_is(self, house: House) -> None:
        await house.apply(fake=house.spec())
        [channel] = house.made
        await channel.receiving.get()
        channel.breaks.put_nowait(asyncio.CancelledError())  # type: ignore[arg-type]  # as a library may leak one
        await eventually(lambda: house.channel_manager.stuck() == {"fake": "its task has ended"})


async def test_a_stop_without_sending_leaves_what_is_queued(house: House) -> None:
    await house.apply(fake=house.spec())
    [channel] = house.made
    await channel.receiving.get()
    await house.channel_manager.stop_receiving(sending=False)
    async with house.path.working():
        entered = await house.path.tell("hello")
        await house.path.answer(entered)
        assert await house.path.rows("select state from outbox") == [("pending",)]
    assert channel.shown == []
