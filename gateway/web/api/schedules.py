"""Schedules: a list of the owner's, and those that programs propose."""

import json
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from gateway.agent.verdicts import change_of, given_in, parsed
from gateway.agent.work.schedules import schedule_line
from gateway.domain.conversation.tools import ToolClass, ToolFailed
from gateway.domain.errors import required
from gateway.domain.people.credentials import Scope
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.store.connection.pool import Connection
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion, ReviewRow
from gateway.store.work import schedules
from gateway.web.auth.access import Caller, needs, refuse_source
from gateway.web.http.bodies import RequestBody, Text, json_body, validated
from gateway.web.http.errors import Refused
from gateway.web.site import AtSite, program_run

MAX_PROPOSED = 3
"""Proposals that wait for the owner at the same time."""

router = APIRouter()


class ProposedSchedule(RequestBody):
    """A schedule; `cron_expr` or `run_at` says when it runs."""

    name: Text = Field(min_length=1, max_length=200)
    prompt: Text = Field(min_length=1, description="The work to do then.")
    cron_expr: Text | None = Field(None, description="minute hour day-of-month month day-of-week")
    run_at: Text | None = Field(None, pattern=r"^(\d|$)", description="ISO 8601")
    timezone: Text | None = Field(None, description="IANA; default: the owner's")


@router.get("/api/schedules", dependencies=[Depends(needs(Scope.READ))])
async def listed(site: AtSite) -> dict[str, list[str]]:
    """List the owner's reminders and recurring work, a line each."""
    rows = await site.database.read(lambda conn: schedules.listed(conn, site.owner.id))
    return {"schedules": list(map(schedule_line, rows))}


@router.post("/api/schedules", status_code=202, openapi_extra=json_body(ProposedSchedule.model_json_schema()))
async def propose(
    request: Request, site: AtSite, caller: Annotated[Caller, Depends(needs(Scope.TRIGGER))]
) -> dict[str, str]:
    """Propose a schedule. The owner is asked with any token, for a day; without their yes it is never made."""
    site.rate_limiter.spend(caller.account)
    refuse_source(caller)
    body = validated(ProposedSchedule, await request.body())
    given = {name: value for name, value in body.model_dump().items() if value}
    given |= {"action": "add", "schedule_type": "recurring" if body.cron_expr else "once"}
    cron = required((await site.tools.toolbox()).tool("cron"), Refused(409, "switched_off", "Schedules are off here."))
    try:
        arguments = parsed(cron, site.clean(json.dumps(given)))
        change = required(
            await change_of(cron, arguments, program_run()), ToolFailed.own("unchanged", "Nothing to do.")
        )
    except ToolFailed as failed:
        raise Refused(409, failed.error, failed.message) from failed
    who = one_line(caller.session.name if caller.session else "local", 100)
    preview, act = f'The program "{who}" proposes this schedule.\n{change.preview}', ToolClass.PERSIST
    what = cron.name, given_in(arguments), preview, Label.UNTRUSTED, change.base
    question = ReviewQuestion(site.owner.id, site.owner.id, *what, lasts=timedelta(days=1), act=act)
    row = await site.database.run(lambda tx: _ask(tx, site, question))
    await site.topics.refresh()
    return {"waiting_for_approval": row.name, "status": "Nothing is changed yet: the owner is asked."}


async def _ask(tx: Connection, site: AtSite, question: ReviewQuestion) -> ReviewRow:
    await reviews.hold(tx, question.asked)
    now = site.clock.now()
    if sum(each.task_id is None for each in await reviews.list_open(tx, question.asked, now)) >= MAX_PROPOSED:
        raise Refused(429, "too_many_questions", "Other proposals wait for the owner; try again after their answer.")
    return await reviews.ask(tx, question, now)
