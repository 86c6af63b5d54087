"""Toolboxes of tests: without plans, and without secrets or locked files unless a test brings them."""

from collections.abc import Callable, Sequence

from gateway.agent.policy import Policy
from gateway.agent.tool_sources import ToolSource
from gateway.agent.toolbox import Spill, Toolbox, Watch, unwatched
from gateway.domain.conversation.tools import AnyTool
from gateway.domain.principals import Label

OWNERS = Policy(Label.OWNER)


def toolbox_of(
    tools: Sequence[AnyTool],
    spill: Spill,
    policy: Policy = OWNERS,
    *,
    clean: Callable[[str], str] = str,
    sources: Sequence[ToolSource] = (),
    watch: Watch = unwatched,
) -> Toolbox:
    """A toolbox of these tools; by default of the owner's, with nobody to ask."""
    return Toolbox(tools, spill, policy=policy, clean=clean, watch=watch, plan_check=None, sources=sources)
