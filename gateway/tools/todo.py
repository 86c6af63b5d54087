"""The to-do list of a run: write it, check steps off, rewrite it."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from gateway.agent.work.todo_lists import TodoLists
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, ToolArguments, ToolClass, ToolFailed
from gateway.domain.work.todo_lists import TodoList, TodoStep
from gateway.tools import Services, declared, tool

MAX_STEPS = 50


class TodoArguments(ToolArguments):
    """Arguments of todo."""

    steps: tuple[Annotated[str, Field(min_length=1, max_length=300)], ...] | None = Field(
        None, max_length=MAX_STEPS, description="The whole list, in order; steps left out are dropped"
    )
    done: tuple[int, ...] = Field((), max_length=MAX_STEPS, description="Numbers of finished steps")
    title: str | None = Field(None, max_length=100)
    trivial: str | None = Field(None, max_length=300, description="Why this needs none")


@dataclass(frozen=True, slots=True)
class _Todo:
    todo_lists: TodoLists

    @tool("Noting what to do", "Noted what to do", ToolClass.WRITE, effect=Effect.IDEMPOTENT)
    async def todo(self, arguments: TodoArguments, caller: Caller) -> Labelled:
        """Your to-do list for this piece of work. Needed where nobody watches and it takes more than a few calls."""
        if arguments.steps is None and not arguments.done and arguments.trivial is None:
            raise ToolFailed.own("invalid_arguments", "Give steps, done, or trivial.")
        try:
            todo = await self.todo_lists.write(caller, lambda before: _rewritten(before, arguments))
        except IndexError as error:
            raise ToolFailed.own("invalid_arguments", f"done: {error}; nothing was changed.") from error
        if todo.trivial is not None:
            return Labelled.own({"trivial": True})
        return Labelled({"todo": [f"{number} {step}" for number, step in enumerate(todo.steps, start=1)]}, todo.label)


def _rewritten(todo: TodoList, arguments: TodoArguments) -> TodoList:
    if arguments.steps is not None:
        todo = todo.rewritten([TodoStep.parse(each) for each in arguments.steps])
    elif arguments.trivial is not None and not todo.steps:
        return replace(todo, trivial=arguments.trivial)
    title = todo.title if arguments.title is None else TodoStep.parse(arguments.title).text
    return replace(todo.checked(arguments.done), title=title)


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool for the to-do list of the caller's run."""
    return declared(_Todo(services.todo_lists)) if services.todo_lists else ()
