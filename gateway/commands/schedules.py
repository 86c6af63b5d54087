"""/schedules: reminders and recurring tasks."""

from gateway.agent.work.schedules import MOST_SCHEDULES, Schedules, schedule_line
from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import Role
from gateway.store.people import principals
from gateway.timetable.schedules import InvalidSchedule

USAGE = (
    "Write /schedules to see what's scheduled, /schedules all to include paused and finished ones, or "
    "/schedules pause, resume, run or remove with a number or name."
)
NONE = "Nothing is scheduled here. Say what you want and when, such as: remind me tomorrow at 9 to call the bank."


async def run(ctx: CommandContext) -> CommandReply:
    """List the schedules of this person or group; `pause`, `resume`, `run` or `remove` acts on one."""
    person = await principals.get(ctx.tx, ctx.at.principal_id)
    most = None if person.role is Role.OWNER else MOST_SCHEDULES
    schedules = Schedules(ctx.tx, person.id, ctx.clock.now(), most=most)
    action, _, which = ctx.argument.partition(" ")
    return CommandReply(await _reply_to(schedules, action.casefold(), which.strip()))


async def _reply_to(schedules: Schedules, action: str, which: str) -> str:
    match action:
        case "" | "list" | "all" if not which:
            return await _shown(schedules, everything=action == "all")
        case "pause" if which:
            return f"Paused: {schedule_line(await schedules.pause(which))}"
        case "resume" if which:
            return f"Resumed: {schedule_line(await schedules.resume(which))}"
        case "run" if which:
            row, _task = await schedules.run(which)
            return f"Running now: {schedule_line(row)}"
        case "remove" if which:
            return f"Removed: {schedule_line(await schedules.remove(which))}"
        case _:
            return USAGE


async def _shown(schedules: Schedules, *, everything: bool) -> str:
    rows, more = await schedules.shown(everything=everything)
    if not rows:
        return "\n\n".join([NONE, USAGE])
    return "\n".join([*map(schedule_line, rows), *([f"and {more} more"] if more else []), "", USAGE])


command = Command(
    "schedules",
    "your reminders and recurring tasks; pause, resume, run or remove NUMBER or NAME",
    run,
    tokens="as owner",
    refusals=(InvalidSchedule,),
)
