"""Whether the gateway did what the header of an exchange says."""

import json

from gateway.domain.conversation.model import ModelsExhausted, Reply
from tests.llm.wire.exchange import Exchange, Expected
from tests.llm.wire.replay import Outcome, outcome_of


async def check(exchange: Exchange) -> None:
    expects, found = exchange.expects, await outcome_of(exchange)
    if found.failure is not None:
        assert expects.error is not None, str(found.failure)
        _check_failure(expects, found.failure)
    else:
        assert found.reply is not None
        assert expects.error is None, f"answered {found.reply.text!r}"
        _check_reply(expects, found.reply, found.shown)
    _check_requests(expects, found)


def _check_failure(expects: Expected, failure: ModelsExhausted) -> None:
    told = str(failure)
    assert failure.attempts[-1].error == expects.error, told
    assert expects.says in told
    assert not (expects.never_says and expects.never_says in told), told
    assert expects.overflow in (None, failure.overflow), told


def _check_reply(expects: Expected, reply: Reply, shown: str) -> None:
    assert shown in ("", reply.text)
    if expects.text is not None:
        assert reply.text == expects.text
    assert expects.thought in (None, reply.thought.text if reply.thought else "")
    assert expects.says in reply.text, reply.text
    assert not (expects.never_says and expects.never_says in reply.text), reply.text
    made = [[call.name, json.loads(call.arguments)] for call in reply.calls]
    assert made == (expects.calls or []), reply.text
    assert all(call.written == expects.written for call in reply.calls)
    if expects.tokens is not None:
        assert [reply.usage.input_tokens, reply.usage.output_tokens] == expects.tokens


def _check_requests(expects: Expected, found: Outcome) -> None:
    assert expects.waits in (None, found.waits), found.waits
    assert expects.requests in (None, len(found.bodies)), len(found.bodies)
    first, last = found.bodies[0], found.bodies[-1]
    assert {name: last.get(name) for name in expects.sent} == expects.sent
    assert [name for name in expects.left_out if name not in first or name in last] == []
