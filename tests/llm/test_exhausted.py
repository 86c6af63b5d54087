import pytest

from gateway.domain.conversation.model import Attempt
from gateway.llm.call import explain_failures
from gateway.llm.errors import ErrorKind, ModelError


@pytest.mark.parametrize(
    ("model", "kind", "retry_after", "advice"),
    [
        ("openai/x", ErrorKind.AUTH, None, "Check the OpenAI key at https://platform.openai.com/api-keys"),
        ("mybox/x", ErrorKind.AUTH, None, "`models.providers.mybox.api_key`"),
        ("openai/x", ErrorKind.RATE_LIMIT, 90, "in about 90 s"),
        ("openai/x", ErrorKind.OVERLOADED, None, "in a minute"),
        ("openai/x", ErrorKind.NO_CREDIT, None, "Add credit to your OpenAI account"),
        ("openai/x", ErrorKind.UNKNOWN_MODEL, None, "`/model`"),
        ("openai/x", ErrorKind.CONTEXT_LENGTH, None, "`/new`"),
        ("openai/x", ErrorKind.BAD_REQUEST, None, "`/new`"),
        ("ollama/x", ErrorKind.NETWORK, None, "Check that Ollama is running"),
        ("openai/x", ErrorKind.NETWORK, None, "Wait a little"),
        ("openai/x", ErrorKind.SILENCE, None, "Wait a little"),
    ],
)
def test_the_advice_fits_the_last_error(model: str, kind: ErrorKind, retry_after: float | None, advice: str) -> None:
    text = explain_failures([Attempt(model, kind, "why")], ModelError(kind, "why", retry_after=retry_after))
    assert advice in text.splitlines()[-1]


def test_models_stand_in_the_order_in_which_they_were_tried() -> None:
    tries = [
        Attempt("a", "server", "x"),
        Attempt("a", "server", "x"),
        Attempt("b", "auth", "y"),
        Attempt("a", "server", "x"),
    ]
    lines = explain_failures(tries, ModelError(ErrorKind.SERVER, "x")).splitlines()
    assert lines[1:4] == ["1. `a`: server (2 times): x", "2. `b`: auth: y", "3. `a`: server: x"]
