"""Toolboxes of tests: without to-do lists, and without secrets or locked files unless a test brings them."""

from collections.abc import Callable, Sequence

from gateway.agent.policy import PassUnasked, Policy, Words
from gateway.agent.tool_sources import ToolSource
from gateway.agent.toolbox import FillCall, Spill, Toolbox, Watch, unwatched
from gateway.domain.conversation.tools import AnyTool, Caller
from gateway.domain.principals import Label
from gateway.domain.text.texts import is_own_words

OWNERS = Policy(Label.OWNER)


def toolbox_of(
    tools: Sequence[AnyTool],
    spill: Spill,
    policy: Policy = OWNERS,
    *,
    clean: Callable[[str], str] = str,
    sources: Sequence[ToolSource] = (),
    watch: Watch = unwatched,
    fill: FillCall | None = None,
) -> Toolbox:
    """A toolbox of these tools; by default of the owner's, with nobody to ask."""
    return Toolbox(tools, spill, policy=policy, clean=clean, watch=watch, todo_check=None, sources=sources, fill=fill)


def answering(*messages: str) -> PassUnasked:
    """A turn that answers these messages of a person; one call passes."""
    passed: list[Caller] = []

    async def pass_unasked(caller: Caller, words: Sequence[Words] | None) -> bool:
        worded = words is None or any(all(is_own_words(text, each) for each in words) for text in messages)
        may_pass = worded and (words is None or not passed)
        if may_pass:
            passed.append(caller)
        return may_pass

    return pass_unasked
