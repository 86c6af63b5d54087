"""Forks: a task is run again from one of its model calls, to see what comes of it otherwise."""

from uuid import uuid4

from gateway.agent.trees.starting import NoSuchTask, find
from gateway.domain.ids import PrincipalId, TaskId
from gateway.domain.work.assignment import Assignment
from gateway.domain.work.tasks import Lane
from gateway.store import sessions
from gateway.store.connection.pool import Connection
from gateway.store.engine import steps, tasks, trees
from gateway.store.transcript import branches, messages


async def fork(tx: Connection, principal: PrincipalId, which: str, at: int, model: str | None = None) -> TaskId:
    """Queue a tree that goes on from the model call that is step `at`, or the last one before it; raises `NoSuchTask`.

    It reads what was said until then where it is, with the labels of that, and asks the model again. It has none of
    the permissions given to the task, asks before every act, and writes files to a copy of the workspace. Its result
    is not sent to a chat.
    """
    source = await find(tx, principal, which)
    before = Assignment.model_validate(await tasks.payload(tx, source))
    place = await steps.asked_at(tx, source, at)
    asked = before.asked or await messages.prompt_of(tx, source)
    if place is None or asked is None:
        raise NoSuchTask(
            f"The task has no model call at or before a step {at}; `supaclaw tasks trace` lists its steps."
        )
    label = await sessions.label(tx, place.session)
    session = await branches.start(tx, principal, place.session, place.seq, before.label, unattended=True)
    if session is None:
        raise NoSuchTask("That is a fork of too many forks; fork an earlier one.")
    made = TaskId(uuid4())
    changes = {"fork": made, "forked_from": source, "asked": asked, "model": model, "deliver": False, "call": None}
    work = before.model_copy(update={**changes, "label": max(before.label, label)})
    await tasks.create(
        tx,
        principal,
        "agent",
        Lane.AGENTS,
        payload=work.model_dump(mode="json"),
        session=session,
        id=made,
        agent=place.agent,
        budget_usd=(await trees.place(tx, source)).budget_usd,
    )
    return made
