import re
from dataclasses import replace

from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import Attempt
from tests.flow.path import MessagePath, call, in_turn, message, said


async def test_it_tells_how_the_last_answer_came_to_be(path: MessagePath) -> None:
    tried = replace(said("", call("look", text="x")), failed=(Attempt("big", "overloaded", "try later"),))
    path.model.answer = in_turn(tried, said("done"))
    async with path.working():
        await path.ask("go")
        await path.channel.until(bool)
        await path.outbound.drain(5)
        lines = (await path.ask("/why")).split("\n")
    assert re.fullmatch(r"Received \d\d:\d\d:\d\d, answered after \d+\.\d s", lines[0])
    assert re.fullmatch(r"look: \d+ ms", lines[3])
    assert [*lines[1:3], *lines[4:]] == [
        "big failed: overloaded: try later",
        "fake: 7 ms, 10 tokens in, 5 out, $0.0010",
        "fake: 7 ms, 10 tokens in, 5 out, $0.0010",
        "Part 1: sent as p1",
    ]


async def test_it_tells_only_of_the_last_answer(path: MessagePath) -> None:
    async with path.working():
        await path.ask("one")
        await path.ask("two")
        assert (await path.ask("/why")).count("fake: ") == 1


async def test_a_refused_answer_says_why(path: MessagePath) -> None:
    async with path.working():
        await path.ask("go")
        await path.channel.until(bool)
        await path.outbound.drain(5)
        await path.rows("update outbox set state = 'failed', attempts = 3, error = 'blocked' returning id")
        assert (await path.ask("/why")).endswith("Part 1: failed as p1 after 3 tries: blocked")


async def test_before_the_first_answer_there_is_nothing_to_tell(path: MessagePath) -> None:
    assert await path.ask("/why") == "There is no answer in this session yet."


async def test_where_people_read_the_transcript_nothing_was_sent(path: MessagePath) -> None:
    web = Address("web", "", "1")
    async with path.working():
        for text in ("hello", "/why"):
            [accepted] = await path.inbound.accept([replace(message(text), address=web)])
            reply = await path.answer(accepted)
    assert reply.text.endswith("Shown where you read it: nothing had to be sent")
    assert path.channel.texts == []
