from uuid import uuid4

from gateway.domain.ids import MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.work.tasks import Claim, Lane
from gateway.flow import live as live_module
from gateway.flow.live import (
    Live,
    MessageStored,
    Overrun,
    SessionReplaced,
    TextDropped,
    TextWritten,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

HERE, THERE = SessionId(uuid4()), SessionId(uuid4())


def test_listeners_hear_their_session_in_order() -> None:
    live = Live()
    with live.subscribe(HERE) as first, live.subscribe(HERE) as second:
        for event in (TextWritten("a"), TextWritten("b")):
            live.publish(HERE, event)
        live.publish(THERE, TextDropped())
        assert first.ready() == second.ready() == [TextWritten("a"), TextWritten("b")]
    live.publish(HERE, TextDropped())
    assert first.ready() == []


async def test_a_listener_waits_for_what_comes() -> None:
    live = Live()
    with live.subscribe(HERE) as events:
        live.publish(HERE, MessageStored(MessageId(1)))
        assert await events.get() == MessageStored(MessageId(1))
        live.publish(HERE, TextDropped())
        async for event in events:
            assert event == TextDropped()
            break


def test_a_slow_listener_is_told_to_read_again_and_costs_no_memory() -> None:
    live = Live()
    with live.subscribe(HERE) as events:
        for _ in range(live_module.QUEUE + 1):
            live.publish(HERE, TextWritten("x"))
        live.publish(HERE, TextDropped())
        assert events.ready() == [Overrun(), TextDropped()]


def test_the_unfinished_text_can_be_read_by_who_comes_late() -> None:
    live = Live()
    live.publish(HERE, TextWritten("nobody started"))
    assert live.written(HERE) is None
    live.publish(HERE, TurnStarted(()))
    seen = []
    for event in (TextWritten("a"), TextWritten("b"), TextDropped(), TextWritten("c"), ToolStarted("1", "look", "{}")):
        live.publish(HERE, event)
        seen.append(live.written(HERE))
    assert seen == ["a", "ab", "", "c", ""]
    live.publish(HERE, TurnEnded())
    assert live.written(HERE) is None


def test_the_end_of_a_turn_that_another_has_followed_takes_nothing_from_that_one() -> None:
    live, (first, second) = Live(), (claim(1), claim(2))
    live.publish(HERE, TurnStarted((MessageId(1),), first))
    live.publish(HERE, TextWritten("old"))
    with live.subscribe(HERE) as events:
        live.publish(HERE, TurnStarted((MessageId(2),), second))
        assert live.written(HERE) == ""
        live.publish(HERE, TurnEnded(first))
        live.publish(HERE, TextWritten("new"))
        live.publish(HERE, TurnStarted((MessageId(3),), second))
        assert live.written(HERE) == "new"
        live.publish(HERE, TurnEnded(second))
        live.publish(HERE, TurnEnded(second))
        assert live.written(HERE) is None
        assert [type(event) for event in events.ready()] == [TurnStarted, TextWritten, TurnStarted, TurnEnded]


def claim(token: int) -> Claim:
    return Claim(TaskId(uuid4()), token, "chat", Lane.CHAT, PrincipalId(uuid4()), HERE, "default", 1, 5)


def test_who_follows_the_rows_hears_of_each_session_that_got_some_and_of_nothing_else() -> None:
    live, heard = Live(), list[SessionId]()
    live.listen(heard.append)
    for silent in (TextWritten("a"), TextDropped(), TurnEnded(), Overrun()):
        live.publish(HERE, silent)
    assert heard == []
    for event in (
        MessageStored(MessageId(1)),
        ToolStarted("1", "look", "{}"),
        ToolEnded("1", "{}", False, 1),
        TurnStarted(()),
        SessionReplaced(THERE),
    ):
        live.publish(HERE, event)
    live.publish(THERE, MessageStored(MessageId(2)))
    assert heard == [HERE] * 5 + [THERE]
