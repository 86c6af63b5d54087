"""The plan of a turn: calls that it writes down before it reads anything, and that then need no question."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from textwrap import indent

from gateway.agent.work.plans import Plans
from gateway.agent.work.schedules import Schedules
from gateway.domain.conversation.diff import for_chat
from gateway.domain.conversation.tools import AnyTool, Caller, Change, Effect, Labelled, ToolClass, ToolFailed
from gateway.domain.json import JsonObject
from gateway.domain.work.plans import HOW, PlanArguments, pin_of
from gateway.store.connection.pool import Connection
from gateway.store.work import schedules
from gateway.store.work.schedules import ScheduleRow
from gateway.timetable.wording import in_words
from gateway.tools import PrincipalContext, Services, declared, tool


@dataclass(frozen=True, slots=True)
class _Plan:
    plans: Plans
    context: PrincipalContext

    async def kind(self, arguments: PlanArguments, _caller: Caller) -> ToolClass:
        return ToolClass.IRREVERSIBLE if arguments.schedule else ToolClass.WRITE  # the former always asks

    async def lasting(self, arguments: PlanArguments, caller: Caller) -> Change | None:
        """The schedule with all calls of its plan. Raises `ToolFailed` if a chat can't show it whole."""
        if arguments.schedule is None:
            return None
        planned = self.plans.accept(arguments, caller)
        row = await self.context.transact(partial(self._schedule, which=arguments.schedule))
        facts = f"Each run of schedule {row.id}: {row.definition.name}\n{in_words(row.definition)}"
        steps = [f"Step {n}: {step.shown(planned[step.tool].roles)}" for n, step in enumerate(arguments.steps, start=1)]
        if for_chat(preview := "\n".join([facts, indent(row.definition.prompt, "  "), *steps]))[1]:
            raise ToolFailed.own("too_long", "The question about this plan doesn't fit into a chat; plan less.")
        return Change(preview, hashlib.sha256(json.dumps([preview, _facts(planned)]).encode()).hexdigest())

    @tool("Planning", "Planned", kind, lasting, effect=Effect.IDEMPOTENT, private=True)
    async def plan(self, arguments: PlanArguments, caller: Caller) -> Labelled:
        """Call this first, before you read anything, if the user wants something sent or changed that depends on what
        you will read: what the plan has needs no approval later. Steps run in order, each once."""
        facts = _facts(self.plans.accept(arguments, caller))
        if arguments.schedule is None:
            return Labelled.own({**facts, "message": HOW})
        steps = arguments.model_dump(mode="json", exclude_unset=True, exclude={"schedule"})
        keep = partial(self._keep, which=arguments.schedule, plan={"arguments": steps, "result": facts})
        return Labelled.own({"scheduled": await self.context.transact(keep)})

    async def _schedule(self, tx: Connection, which: str) -> ScheduleRow:
        """Locked until the transaction ends."""
        row = await Schedules(tx, self.context.principal, self.context.clock.now(), most=None).get(which)
        if row.label > self.plans.own:
            raise ToolFailed.own("not_own", "The schedule has other people's words, so its runs can't have a plan.")
        return row

    async def _keep(self, tx: Connection, which: str, plan: JsonObject) -> int:
        row = await self._schedule(tx, which)
        await schedules.set_plan(tx, row.id, plan)
        return row.id


def _facts(planned: Mapping[str, AnyTool]) -> JsonObject:
    roles: JsonObject = {name: dict(tool.roles) for name, tool in planned.items() if tool.roles}
    return {"planned": {name: pin_of(tool) for name, tool in planned.items()}, "roles": roles}


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool for plans of the owner's chats and schedules."""
    return declared(_Plan(services.plans, services.context)) if services.plans and services.context else ()
