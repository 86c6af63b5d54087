"""The corpus of exchanges, by the real client over a real socket; docs/models.md lists what it holds."""

import pytest

from gateway.llm.vendors import NATIVE, split_model
from tests.llm.wire.checks import check
from tests.llm.wire.exchange import HABITS, Exchange, exchanges
from tests.llm.wire.table import PAGE, table_in, table_of

ALL = exchanges()
LITELLM = [exchange for exchange in ALL if split_model(exchange.model)[0] in NATIVE]
OWN = [exchange for exchange in ALL if exchange not in LITELLM]


@pytest.mark.parametrize("exchange", OWN, ids=lambda exchange: exchange.name)
async def test_the_gateway_does_what_is_right(exchange: Exchange) -> None:
    await check(exchange)


def test_the_corpus_covers_what_it_should() -> None:
    assert len(ALL) >= 150
    assert {exchange.habit for exchange in ALL} == set(HABITS)
    assert [exchange.name for exchange in ALL if not exchange.source.strip()] == []


def test_the_page_lists_what_was_tried() -> None:
    assert table_in(PAGE.read_text(encoding="utf-8")) == table_of(ALL), (
        "write it anew: python -m tests.llm.wire.table --write"
    )
