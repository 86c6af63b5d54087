"""What a turn emits is seen by those who watch its session."""

from gateway.domain.conversation.events import Answered, Steered
from gateway.domain.conversation.model import Attempt, Restarted, TextDelta, Waiting
from gateway.flow.live import Live, ModelAwaited, TextDropped, TextWritten
from gateway.flow.turn.sinks import LiveSink
from tests.flow.path import MessagePath, call, in_turn, said


async def test_a_screen_sees_text_and_where_it_starts_again(path: MessagePath) -> None:
    accepted = await path.tell("hello")
    assert accepted.session_id is not None
    live = Live()
    sink = LiveSink(live, accepted.session_id)
    with live.subscribe(accepted.session_id) as events:
        busy = Attempt("fake", "busy", "x")
        for event in (TextDelta("a"), Restarted(busy), Waiting(busy, 5), Steered(()), Answered("b")):
            await sink.take(event)
        assert events.ready() == [TextWritten("a"), TextDropped(), ModelAwaited("fake", "busy", 5)]


async def test_a_screen_sees_tools_start_and_end(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("look", text="x")), said("done"))
    accepted = await path.tell("go")
    assert accepted.session_id is not None
    with path.live.subscribe(accepted.session_id) as events:
        await path.turns.run(await path.claim())
        seen = [type(event).__name__ for event in events.ready()]
    assert seen == ["TurnStarted", "ToolStarted", "ToolEnded", "TextWritten", "MessageStored", "TurnEnded"]
