"""The plan of a run: write it, check steps off, rewrite it."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from gateway.agent.work.plans import Plans
from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Effect,
    Labelled,
    Tool,
    ToolArguments,
    ToolClass,
    ToolFailed,
    Wording,
)
from gateway.domain.work.plans import TODO, Plan, PlanStep
from gateway.tools import Services

MAX_STEPS = 50


class TodoArguments(ToolArguments):
    """Arguments of todo."""

    steps: tuple[Annotated[str, Field(min_length=1, max_length=300)], ...] | None = Field(
        None, max_length=MAX_STEPS, description="The whole plan, in order; steps left out are dropped"
    )
    done: tuple[int, ...] = Field((), max_length=MAX_STEPS, description="Numbers of finished steps")
    title: str | None = Field(None, max_length=100)
    trivial: str | None = Field(None, max_length=300, description="Why this needs no plan")


@dataclass(frozen=True, slots=True)
class _Todo:
    plans: Plans

    async def run(self, arguments: TodoArguments, caller: Caller) -> Labelled:
        if arguments.steps is None and not arguments.done and arguments.trivial is None:
            raise ToolFailed.own("invalid_arguments", "Give steps, done, or trivial.")
        try:
            plan = await self.plans.write(caller, lambda before: _rewritten_plan(before, arguments))
        except IndexError as error:
            raise ToolFailed.own("invalid_arguments", f"done: {error}; nothing was changed.") from error
        if plan.trivial is not None:
            return Labelled.own({"trivial": True})
        steps = [f"{number} {step}" for number, step in enumerate(plan.steps, start=1)]
        return Labelled({"plan": steps}, plan.label)


def _rewritten_plan(plan: Plan, arguments: TodoArguments) -> Plan:
    if arguments.steps is not None:
        plan = plan.rewritten([PlanStep.parse(each) for each in arguments.steps])
    elif arguments.trivial is not None and not plan.steps:
        return replace(plan, trivial=arguments.trivial)
    title = plan.title if arguments.title is None else PlanStep.parse(arguments.title).text
    return replace(plan.checked(arguments.done), title=title)


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool for the caller's plan."""
    if services.plans is None:
        return ()
    return (
        Tool(
            TODO,
            "Your plan for this piece of work. Needed where nobody watches and it takes more than a few calls.",
            TodoArguments,
            _Todo(services.plans).run,
            Effect.IDEMPOTENT,
            kind=ToolClass.WRITE,
            wording=Wording("Planning", "Planned"),
        ),
    )
