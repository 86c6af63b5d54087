"""A reply brings the file of the message that it replies to: the stored one, also after /new, else it is fetched."""

from typing import Any

import pytest

from gateway.domain.conversation.inbound import Attachment
from gateway.domain.conversation.model import UserMessage
from gateway.domain.principals import Label
from tests.flow.path import MEMBER, MessagePath

CAT = Attachment("f1", "cat.txt", "text/plain")
AGAIN = Attachment("other-ref", "cat.txt", "text/plain")
REPLY: dict[str, Any] = {"quoted": "[document]", "quoted_id": "m1", "quoted_files": (AGAIN,)}
GROUP: dict[str, Any] = {"chat": "-5", "private": False, "sender": MEMBER}


@pytest.fixture
def path(path: MessagePath) -> MessagePath:
    path.channel.files |= {"f1": b"a cat on a mat", "f2": b"a dog"}
    return path


def newest(path: MessagePath) -> str:
    return next(part.text for part in reversed(path.model.prompts[-1].messages) if isinstance(part, UserMessage))


@pytest.mark.parametrize("between", [(), ("/new",)])
@pytest.mark.parametrize("reply", [REPLY, REPLY | {"quoted_files": ()}])
async def test_a_stored_file_is_used(path: MessagePath, between: tuple[str, ...], reply: dict[str, Any]) -> None:
    async with path.working():
        await path.ask("keep this for me, please", id="m1", attachments=(CAT,))
        for each in between:
            await path.ask(each)
        await path.ask("what is this?", **reply)
    assert "> [its file cat.txt is below]" in newest(path)
    assert "a cat on a mat" in newest(path)
    assert await path.rows("select count(distinct file_id), bool_and(state = 'stored') from attachments") == [(1, True)]


@pytest.mark.parametrize("where", [{}, GROUP])
async def test_any_other_is_fetched_and_untrusted(path: MessagePath, where: dict[str, Any]) -> None:
    reply = {"quoted": "[document]", "quoted_id": "gone", "quoted_files": (Attachment("f2", "dog.txt", "text/plain"),)}
    async with path.working():
        await path.ask("what is this?", **reply, **where)
    assert "a dog" in newest(path)
    assert await path.rows("select label from messages where kind = 'user'") == [(Label.UNTRUSTED,)]


async def test_one_that_is_gone_is_named(path: MessagePath) -> None:
    async with path.working():
        await path.ask("what is this?", quoted="[photo]", quoted_id="gone", quoted_files=(AGAIN,))
    assert "[file cat.txt: text/plain; no such file]" in newest(path)


async def test_nobody_gets_the_file_of_another(path: MessagePath) -> None:
    async with path.working():
        await path.ask("keep this for me, please", id="m1", attachments=(CAT,))
        await path.ask("what is this?", chat=MEMBER, sender=MEMBER, quoted="[document]", quoted_id="m1")
    assert "cat" not in newest(path)


async def test_of_an_album_the_one_that_the_platform_names_comes(path: MessagePath) -> None:
    dog = Attachment("f2", "dog.txt", "text/plain")
    async with path.working():
        await path.ask("keep these for me, please", id="m1", attachments=(CAT, dog))
        await path.ask("what is this?", **REPLY)
    assert "a cat on a mat" in newest(path)
    assert "a dog" not in newest(path)
