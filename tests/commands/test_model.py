from gateway.llm.client import Description
from gateway.llm.cooldown import Cooling
from gateway.llm.errors import ErrorKind
from tests.flow.path import FakeModel, MessagePath, build


async def test_it_names_the_model_and_why_it_was_chosen(path: MessagePath) -> None:
    assert (await path.ask("/model")).split("\n") == [
        "Model: fake (a test)",
        "To change it, set models.primary in config.json; it applies at once.",
    ]


class Tired(FakeModel):
    def describe(self) -> Description:
        cooling = Cooling("big", ErrorKind.RATE_LIMIT, 41.6)
        return Description("small", "big is cooling down", ("big", "small", "last"), (cooling,))


async def test_it_shows_the_chain_and_who_is_set_aside(path: MessagePath) -> None:
    path = await build(path.database, path.workspace, Tired())
    assert (await path.ask("/model")).split("\n")[:3] == [
        "Model: small (big is cooling down)",
        "Then: big, last",
        f"big is skipped for 42 s ({ErrorKind.RATE_LIMIT.value})",
    ]
