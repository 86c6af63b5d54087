"""What goes with a text: files, buttons, the message it answers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.channels.channel import Button, Capabilities, OutgoingFile, SendDelayed, SendFailed, SendUncertain
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import FileId
from gateway.domain.principals import Label
from gateway.flow.outbound.delivery import POST_IN_DOUBT, UNCONFIRMED
from gateway.flow.outbound.parts import record_file
from gateway.store.connection.pool import Database
from gateway.store.delivery import addresses
from gateway.store.transcript import messages, sessions
from gateway.workspace.files.disk import measure
from tests.fakes.channel import FakeChannel
from tests.flow.outbound.test_sender import STATES, sending, sent, stop
from tests.flow.path import FakeModel, MessagePath, build
from tests.flow.path import said as reply

YES = Button("Yes", "/yes")
ABLE = Capabilities(max_text=4096, buttons=True, max_file=1000)


@pytest.fixture
async def path(database: Database, workspace: Path) -> MessagePath:
    """With a messenger that can do everything."""
    return await build(database, workspace, FakeModel(), channel=FakeChannel(capabilities=ABLE))


async def note(path: MessagePath, *names: str) -> list[FileId]:
    """Files the agent is about to send."""
    owner = path.people.owner.id
    async with path.database.transaction() as tx:
        rows = [await record_file(tx, owner, measure(path.workspace, name, 10_000), Label.OWNER) for name in names]
    return [row.id for row in rows]


async def put(
    path: MessagePath, text: str, *, files: Sequence[str] = (), private: bool = True, final: bool = True, **more: Any
) -> None:
    for name in files:
        if not (path.workspace / name).exists():
            (path.workspace / name).write_text(f"content of {name}")
    accepted = await path.tell("hello", private=private, chat="1" if private else "g")
    assert accepted.address_id is not None
    ids = await note(path, *files)
    async with path.database.transaction() as tx:
        at = await addresses.lock_by_id(tx, accepted.address_id)
        await sessions.lock(tx, at.session_id)
        said = AssistantText(text, final)
        row = await messages.say(tx, at.session_id, at.principal_id, said, label=Label.OWNER, address=at.id)
        owned = replace(at, principal_id=path.people.owner.id)
        await path.outbound.put(tx, owned, row.id, text, files=ids, **more)


class TestFiles:
    async def test_a_file_goes_with_its_caption(self, path: MessagePath) -> None:
        await put(path, "Here it is.", files=["report.pdf"])
        assert await sent(path, count=1) == ["Here it is."]
        [message] = path.channel.shown
        file = OutgoingFile(str(path.workspace / "report.pdf"), "report.pdf", "application/pdf", 21)
        assert (message.file, message.key, message.again) == (file, "supaclaw-1", False)
        assert path.channel.taken == [b"content of report.pdf"]

    async def test_files_follow_the_text_in_order(self, path: MessagePath) -> None:
        await put(path, "word " * 1500, files=["a.txt", "b.txt"])
        await put(path, "later")
        await sent(path, count=5)
        names = [message.file and message.file.name for message in path.channel.shown]
        assert names == [None, None, "a.txt", "b.txt", None]
        assert [state for _, state in await path.rows(STATES)] == ["sent"] * 5

    async def test_a_file_that_has_to_wait_holds_back_what_follows(self, path: MessagePath) -> None:
        path.channel.faults = [SendDelayed("flood", retry_after=60)]
        await put(path, "", files=["a.txt"])
        await put(path, "later")
        running = await sending(path)
        await path.channel.until_asked(1)
        await path.outbound.drain(5)
        assert path.channel.shown == []
        await path.rows("update outbox set run_at = now() returning id")
        path.signals.outbox.set()
        await path.channel.until(lambda texts: len(texts) == 2)
        await stop(running)
        [first, second] = path.channel.shown
        assert (first.file is not None, first.again, second.text) == (True, False, "later")

    async def test_a_file_too_large_for_the_channel_is_named_instead(self, path: MessagePath) -> None:
        (path.workspace / "big.bin").write_bytes(bytes(1001))
        await put(path, "Here it is.", files=["big.bin"])
        [shown] = await sent(path, count=1)
        assert shown == "Here it is.\n\nbig.bin is too large to send here. It's in my files: big.bin"

    async def test_a_channel_without_files_gets_words(self, database: Database, path: MessagePath) -> None:
        plain = FakeChannel(capabilities=Capabilities(max_text=4096))
        path = await build(database, path.workspace, FakeModel(), channel=plain)
        await put(path, "", files=["a.txt"])
        assert await sent(path, count=1) == ["Files cannot be sent here. It's in my files: a.txt"]

    async def test_a_file_that_is_gone_is_told_of_and_the_rest_goes_on(self, path: MessagePath) -> None:
        await put(path, "", files=["a.txt", "b.txt"])
        (path.workspace / "a.txt").unlink()
        assert await sent(path, count=2) == ["a.txt couldn't be sent: it's no longer at a.txt.", ""]
        assert path.channel.taken == [b"content of b.txt"]

    async def test_a_file_that_was_changed_by_somebody_is_not_sent(self, path: MessagePath) -> None:
        await put(path, "", files=["a.txt"])
        (path.workspace / "a.txt").write_text("something else")
        [shown] = await sent(path, count=1)
        assert shown == "a.txt was not sent: it has changed since. It's in my files: a.txt"

    async def test_a_file_replaced_by_a_link_is_not_followed(self, path: MessagePath) -> None:
        await put(path, "", files=["a.txt"])
        secret = path.workspace.parent / "secret"
        (path.workspace / "a.txt").rename(secret)
        (path.workspace / "a.txt").symlink_to(secret)
        await sent(path, count=1)
        assert path.channel.taken == []

    async def test_a_refused_file_leaves_its_caption_and_a_word(self, path: MessagePath) -> None:
        path.channel.faults = [SendFailed("Telegram refused it.")]
        await put(path, "Here it is.", files=["a.txt"])
        [shown] = await sent(path, count=1)
        assert shown == "Here it is.\n\na.txt was refused: Telegram refused it. It's in my files: a.txt"
        assert [state for _, state in await path.rows(STATES)] == ["sent"]

    async def test_someone_who_cannot_be_reached_gets_neither(self, path: MessagePath) -> None:
        path.channel.faults = [SendFailed("blocked"), SendFailed("blocked")]
        await put(path, "Here it is.", files=["a.txt"])
        await put(path, "later")
        assert await sent(path, count=1) == ["later"]
        assert [state for _, state in await path.rows(STATES)] == ["failed", "sent"]


class TestButtons:
    async def test_they_are_shown_where_there_are_some(self, path: MessagePath) -> None:
        await put(path, "Really? /yes or /no", buttons=[YES])
        await sent(path, count=1)
        assert path.channel.shown[0].buttons == (YES,)

    async def test_and_left_out_where_there_are_none(self, database: Database, path: MessagePath) -> None:
        plain = FakeChannel(capabilities=Capabilities(max_text=4096))
        path = await build(database, path.workspace, FakeModel(), channel=plain)
        await put(path, "Really? /yes or /no", buttons=[YES])
        assert await sent(path, count=1) == ["Really? /yes or /no"]
        assert plain.shown[0].buttons == ()


class TestReplies:
    async def test_in_a_group_an_answer_names_what_it_answers_once(self, path: MessagePath) -> None:
        async with path.working():
            path.model.answer = lambda _: reply("word " * 1500)
            await path.ask("what do you think?", chat="g", private=False, id="m77")
            await path.channel.until(lambda texts: len(texts) == 2)
        assert [message.reply_to for message in path.channel.shown] == ["m77", None]

    async def test_in_private_it_goes_without_saying(self, path: MessagePath) -> None:
        async with path.working():
            await path.ask("what do you think?", id="m77")
            await path.channel.until(bool)
        assert path.channel.shown[0].reply_to is None


class TestDoubts:
    async def test_of_a_message_that_is_no_answer_nothing_is_promised_of_last(self, path: MessagePath) -> None:
        path.channel.faults = [SendUncertain("no answer")]
        await put(path, "", files=["a.txt"], final=False)
        assert await sent(path, count=1) == [POST_IN_DOUBT]

    async def test_of_the_file_of_an_answer_it_is(self, path: MessagePath) -> None:
        path.channel.faults = [SendUncertain("no answer")]
        await put(path, "Here it is.", files=["a.txt"])
        assert await sent(path, count=1) == [UNCONFIRMED]
