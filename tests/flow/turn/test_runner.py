"""How a turn ends when no model answers."""

from gateway.domain.conversation.model import Attempt, ModelsExhausted
from gateway.domain.principals import Label
from gateway.flow.turn.opening import ChatOpening
from tests.flow.path import MessagePath


async def test_a_notice_is_trusted_as_the_conversation_is(path: MessagePath) -> None:
    path.model.answer = lambda _: ModelsExhausted("no", (Attempt("fake", "auth", "no key"),))
    await path.tell("hello")
    opened = await path.database.run(ChatOpening(run=await path.claim()).open)
    assert opened is not None
    result = await path.turn_runner.answer(await path.turn_runner.begin(opened))
    assert (result.error, result.label) == ("no model answered", Label.OWNER)
