"""The plan of a turn: calls that it writes down before it reads anything, and that then need no question."""

from dataclasses import dataclass

from gateway.agent.work.plans import Plans
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, Tool, ToolClass, Wording
from gateway.domain.json import JsonObject
from gateway.domain.work.plans import PLAN, PlanArguments
from gateway.tools import Services


@dataclass(frozen=True, slots=True)
class _Plan:
    plans: Plans

    async def run(self, arguments: PlanArguments, caller: Caller) -> Labelled:
        pins = self.plans.accept(arguments, caller)
        tools = [tool for name in pins if (tool := caller.find_tool(name))]
        roles: JsonObject = {tool.name: dict(tool.roles) for tool in tools if tool.roles}
        message = "Now make these calls one after the other; leave out what is in values, the gateway fills it."
        return Labelled.own({"planned": pins, "roles": roles, "message": message})


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool for plans of the owner's chats."""
    if services.plans is None:
        return ()
    return (
        Tool(
            PLAN,
            "Call this first, before you read anything, if the user wants something sent or changed that depends on "
            "what you will read: what the plan has needs no approval later. Steps run in order, each once.",
            PlanArguments,
            _Plan(services.plans).run,
            Effect.IDEMPOTENT,
            kind=ToolClass.WRITE,
            private=True,
            wording=Wording("Planning", "Planned"),
        ),
    )
