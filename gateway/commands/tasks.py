"""/tasks: trees of agents that work in the background."""

from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import NoSuchTask, TooManyTasks, task_line, tree_summary
from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import Role
from gateway.domain.text.texts import first_of
from gateway.domain.work.trees import MOST_LIVE
from gateway.store.work import trees

SHOWN, LINES = 10, 50
USAGE = "Write /tasks to see the latest, or /tasks show, cancel or retry with an id."
NONE = "There are no background tasks. Ask for something long, and say that it can run in the background."


async def run(ctx: CommandContext) -> CommandReply:
    """List the latest trees of the chat's person; `show`, `cancel` or `retry` acts on one."""
    action, _, which = ctx.argument.partition(" ")
    which, whose = which.strip(), ctx.at.principal_id
    match action.casefold():
        case "" | "list" if not which:
            rows = await trees.newest(ctx.tx, whose, SHOWN)
            return CommandReply("\n".join([*map(task_line, rows), "", USAGE]) if rows else NONE)
        case "show" if which:
            nodes = await task_trees.show(ctx.tx, whose, which)
            return CommandReply("\n".join([tree_summary(nodes), *first_of([*map(task_line, nodes)], LINES)]))
        case "cancel" if which:
            task, running = await task_trees.cancel(ctx.tx, whose, which)
            return CommandReply(f"Cancelled: {str(task)[: task_trees.SHORT]} with all below it.", tuple(running))
        case "retry" if which:
            task = await task_trees.retry(ctx.tx, whose, which, None if ctx.role is Role.OWNER else MOST_LIVE)
            return CommandReply(f"Started again: {str(task)[: task_trees.SHORT]}")
        case _:
            return CommandReply(USAGE)


REFUSALS = (NoSuchTask, TooManyTasks)
command = Command(
    "tasks", "work in the background; show, cancel or retry ID", run, tokens="as owner", refusals=REFUSALS
)
