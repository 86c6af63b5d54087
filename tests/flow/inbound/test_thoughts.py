"""One thought in several messages: one turn and one answer, each part with its own label."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.config.failpoints import Step
from gateway.domain.channels.routing import Ignore
from gateway.domain.conversation.inbound import Attachment
from gateway.domain.errors import DiskFull
from gateway.domain.principals import Label
from gateway.flow.inbound.acceptance import Companions
from gateway.flow.journal.journal import Journal
from gateway.store.connection.pool import Database
from gateway.store.transcript import unread
from tests.flow.inbound.test_attachments import KillsHere
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, message, restarted

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
PHOTO = (Attachment("f1", "cat.txt", "text/plain"),)
BOB: dict[str, Any] = {"forwarded": "Bob"}
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "comment": ("summarise this", {}),
    "forward": ("the lease ends in May", BOB),
    "question": ("what is it?", {}),
    "photo": ("", {"attachments": PHOTO}),
}


@pytest.fixture
def path(path: MessagePath) -> MessagePath:
    path.channel.files["f1"] = b"a cat"
    return path


@pytest.mark.parametrize(
    "parts",
    [
        ["comment", "forward"],
        ["forward", "comment"],
        ["comment", "forward", "forward", "forward"],
        ["photo", "question"],
        ["question", "photo"],
    ],
)
@pytest.mark.parametrize("while_it_works", [False, True])
async def test_they_have_one_answer(path: MessagePath, parts: list[str], *, while_it_works: bool) -> None:
    said = [message(PARTS[part][0], **PARTS[part][1]) for part in parts]
    path.model.gate = asyncio.Event()
    async with path.working():
        if while_it_works:
            await path.inbound.accept(said[:1])
            await path.model.called.wait()
            await path.inbound.accept(said[1:])
        else:
            await path.inbound.accept(said)
        path.model.gate.set()
        await path.channel.until(bool)
    rows = await path.rows("select text, label, answered_by from messages where kind = 'user' order by id")
    assert len({answer for _, _, answer in rows}) == 1
    assert len(path.channel.texts) == 1
    assert [label for _, label, _ in rows] == [
        Label.UNTRUSTED if part in {"forward", "photo"} else Label.OWNER for part in parts
    ]
    prompt = path.model.prompts[-1].messages[-1].text
    assert all(part in prompt for part in (text for text, _, _ in rows))
    assert len(path.model.prompts) == 1 + while_it_works


@pytest.mark.parametrize(
    ("text", "more", "waits"),
    [
        ("hello", {}, False),
        ("hello", {"attachments": PHOTO}, True),
        ("what does this long letter say?", {"attachments": PHOTO}, False),
        ("summarise this:", {}, True),
        ("translate 👇", {}, True),
        ("news", BOB, True),
    ],
)
async def test_nothing_waits_without_a_signal(
    path: MessagePath, text: str, more: dict[str, Any], *, waits: bool
) -> None:
    await path.tell(text, **more)
    assert await path.rows("select run_at > now() from tasks where kind = 'chat'") == [(waits,)]


async def test_what_comes_much_later_or_from_somebody_else_has_an_answer_of_its_own(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "FOLLOWS_WITHIN", timedelta())
    path.model.gate = asyncio.Event()
    async with path.working():
        first = await path.tell("one")
        await path.model.called.wait()
        second = await path.tell("two")
        path.model.gate.set()
        assert (await path.answer(first)).text == "re: one"
        assert (await path.answer(second)).text == "re: two"


@pytest.mark.parametrize("step", [Step.TURN_TAKEN, Step.MODEL_REPLIED, Step.ANSWER_READY])
async def test_a_kill_loses_none_and_answers_once(
    database: Database, workspace: Path, model: FakeModel, step: Step
) -> None:
    path = await build(database, workspace, model, failpoints=KillsHere(step))
    await path.say("summarise this", "it")
    with pytest.raises(asyncio.CancelledError):
        await path.turns.run(await path.claim())
    again = await restarted(path)
    await again.inbound.accept([message("the lease ends in May", **BOB)])
    async with again.working():
        await again.channel.until(bool)
    counts = "select count(*), count(distinct answered_by), count(answered_by) from messages"
    assert await again.rows(counts) == [(4, 1, 3)]


class TestGroups:
    """Only one of the parts names the agent."""

    GROUP: ClassVar[dict[str, Any]] = {"chat": "-5", "sender": MEMBER, "private": False}

    @staticmethod
    def part(text: str, seconds: float = 0, **more: Any) -> Any:
        at = {**TestGroups.GROUP, "addressed": False, **more}
        made = message(text, **{name: value for name, value in at.items() if name != "sent_at"})
        object.__setattr__(made, "sent_at", NOW + timedelta(seconds=seconds))
        return made

    @pytest.mark.parametrize(
        ("parts", "heard"),
        [
            ([("@claw see", 0, {"addressed": True}), ("news", 1, BOB)], ["@claw see", "news"]),
            ([("news", 0, BOB), ("@claw see", 1, {"addressed": True})], ["news", "@claw see"]),
            ([("@claw see", 0, {"addressed": True}), ("news", 60, BOB)], ["@claw see"]),
            ([("@claw see", 0, {"addressed": True}), ("news", 1, {**BOB, "sender": "3"})], ["@claw see"]),
            ([("@claw see", 0, {"addressed": True}), ("unrelated", 1, {})], ["@claw see"]),
            ([("a", 0, {"album": "x"}), ("@claw b", 9, {"album": "x", "addressed": True})], ["a", "@claw b"]),
            ([("@claw a", 0, {"album": "x", "addressed": True}), ("b", 9, {"album": "x"})], ["@claw a", "b"]),
            ([("@claw a", 0, {"album": "x", "addressed": True}), ("b", 9, {"album": "y"})], ["@claw a"]),
            ([("/new", 0, {**BOB}), ("news", 60, BOB)], []),
        ],
    )
    def test_files_and_forwards_beside_it_are_meant_as_well(
        self, parts: list[tuple[str, float, dict[str, Any]]], heard: list[str]
    ) -> None:
        companions = Companions()
        passed = [each for part in parts for each in companions.complete(self.part(part[0], part[1], **part[2]))]
        assert [each.text for each in passed if each.addressed] == heard

    @pytest.mark.parametrize("first", ["file", "call"])
    def test_a_thread_that_each_message_begins_separates_none(self, first: str) -> None:
        """As in Slack's channels, where the file would be in another conversation, and nameless."""
        file = self.part("", id="1", attachments=PHOTO)
        call = self.part("@claw", 1, id="2", addressed=True)
        parts = [replace(each, address=replace(each.address, thread=each.platform_id)) for each in (file, call)]
        parts[0] = replace(parts[0], sender=replace(file.sender, name=MEMBER))
        companions = Companions()
        passed = [each for part in parts[:: 1 if first == "file" else -1] for each in companions.complete(part)]
        heard = [each for each in passed if each.addressed]
        assert {(each.address.thread, each.sender.name) for each in heard} == {("2", "Ada")}
        assert len(heard) == 2

    async def test_they_are_one_turn(self, path: MessagePath) -> None:
        call = {**self.GROUP, "addressed": True}
        one, other = self.part("news", 0, **BOB), self.part("@claw see", 1, **call)
        [ignored] = await path.inbound.accept([one])
        assert isinstance(ignored.decision, Ignore)
        async with path.working():
            [accepted] = await path.inbound.accept([other])
            assert (await path.answer(accepted)).text
        rows = await path.rows("select text, label from messages where kind = 'user' order by seq")
        assert rows == [("[Forwarded from Bob]\n> news", 2), ("@claw see", 2)]

    async def test_they_come_along_where_the_message_is_delivered_again(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def full(*_: object) -> None:
            raise DiskFull("no room")

        await path.inbound.accept([self.part("news", 0, **BOB)])
        call = self.part("@claw see", 1, **{**self.GROUP, "addressed": True})
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "write", full)
            with pytest.raises(DiskFull):
                await path.inbound.accept([call])
        await path.inbound.accept([call])
        assert await path.rows("select count(*) from messages where kind = 'user'") == [(2,)]


async def test_a_model_that_answered_in_vain_is_paid_for(path: MessagePath) -> None:
    path.model.gate = asyncio.Event()
    async with path.working():
        await path.tell("summarise this")
        await path.model.called.wait()
        await path.tell("the lease ends in May", **BOB)
        path.model.gate.set()
        await path.channel.until(bool)
    assert await path.rows("select count(*) from task_steps where kind = 'model'") == [(2,)]
