"""The plan of a turn: calls that it writes down before it reads anything, and that then need no question."""

from dataclasses import dataclass

from gateway.agent.work.plans import Plans
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, ToolClass
from gateway.domain.json import JsonObject
from gateway.domain.work.plans import PlanArguments
from gateway.tools import Services, declared, tool


@dataclass(frozen=True, slots=True)
class _Plan:
    plans: Plans

    @tool("Planning", "Planned", ToolClass.WRITE, effect=Effect.IDEMPOTENT, private=True)
    async def plan(self, arguments: PlanArguments, caller: Caller) -> Labelled:
        """Call this first, before you read anything, if the user wants something sent or changed that depends on what
        you will read: what the plan has needs no approval later. Steps run in order, each once."""
        pins = self.plans.accept(arguments, caller)
        planned = [each for name in pins if (each := caller.find_tool(name))]
        roles: JsonObject = {each.name: dict(each.roles) for each in planned if each.roles}
        message = "Now make these calls one after the other; leave out what is in values, the gateway fills it."
        return Labelled.own({"planned": pins, "roles": roles, "message": message})


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool for plans of the owner's chats."""
    return declared(_Plan(services.plans)) if services.plans else ()
