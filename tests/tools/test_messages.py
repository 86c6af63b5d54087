import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import Caller, Effect
from gateway.domain.ids import MessageId
from gateway.domain.principals import Label
from gateway.tools import Posted, Services
from gateway.tools.messages import MAX_MESSAGE, tools
from gateway.workspace.files.tree import Workspace
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import toolbox_of


async def spill(name: str, _text: str, _label: Label) -> str:
    return name


@dataclass
class Chats:
    """The tools, and what they had said."""

    root: Path
    said: list[tuple[str, str | None, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.toolbox = toolbox_of(tools(Services(Workspace(self.root), self.post)), spill)

    async def post(self, text: str, to: str | None, path: str | None, _caller: Caller) -> Posted:
        self.said.append((text, to, path))
        return Posted(to or "telegram", MessageId(7))

    async def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            (await self.toolbox.run(ToolCall("1", tool, json.dumps(arguments)), CALLER)).text
        )
        return answer


@pytest.fixture
def chats(tmp_path: Path) -> Chats:
    return Chats(tmp_path)


async def test_a_message_says_where_it_went(chats: Chats) -> None:
    assert await chats.call("send_message", text="hi") == {"ok": True, "to": "telegram", "message_id": 7}
    assert (await chats.call("send_message", text="hi", to="web"))["to"] == "web"
    assert chats.said == [("hi", None, None), ("hi", "web", None)]


async def test_a_file_goes_with_its_caption(chats: Chats) -> None:
    await chats.call("send_file", path="a.pdf", caption="Here.", to="slack")
    await chats.call("send_file", path="a.pdf")
    assert chats.said == [("Here.", "slack", "a.pdf"), ("", None, "a.pdf")]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("send_message", {"text": ""}),
        ("send_message", {"text": " \n"}),
        ("send_message", {"text": "x" * (MAX_MESSAGE + 1)}),
        ("send_message", {"text": "hi", "chat": "123"}),
        ("send_file", {"path": "a", "caption": "x" * 901}),
        ("send_file", {}),
    ],
)
async def test_what_cannot_be_said_is_refused_and_nothing_is_sent(
    chats: Chats, tool: str, arguments: dict[str, str]
) -> None:
    assert (await chats.call(tool, **arguments))["error"] == "invalid_arguments"
    assert chats.said == []


async def test_without_chats_it_is_said_so(tmp_path: Path) -> None:
    toolbox = toolbox_of(tools(Services(Workspace(tmp_path))), spill)
    outcome = await toolbox.run(ToolCall("1", "send_message", '{"text": "hi"}'), CALLER)
    assert json.loads(outcome.text) == {"error": "unavailable", "message": "Nothing can be sent from here."}


def test_neither_may_run_twice(chats: Chats) -> None:
    assert {chats.toolbox.effect(name) for name in ("send_message", "send_file")} == {Effect.ONCE}
