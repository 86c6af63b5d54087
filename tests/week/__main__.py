"""Count the questions of the week, with plans and without: `python -m tests.week`. The person says yes to each.

The gateway is whole; the model is a script that knows the calls of each request, and plans them if one of them acts.
Mail, contacts, calendar, pages and chats are fakes; files, reminders and memory are the gateway's own tools.
"""

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from gateway.domain.conversation.model import Prompt, Reply, ToolCall
from gateway.domain.json import Json
from gateway.domain.work.plans import Reference, find, link_in
from gateway.flow import approvals
from gateway.store.connection.pool import Database
from gateway.tools import cron, files, memory, plan
from tests.agentdojo.own_gateway import postgres
from tests.conftest import Server
from tests.flow.path import FakeModel, MessagePath, build, call, results, said
from tests.week.office import Office
from tests.week.requests import WEEK, Call, Request

ACTS = {"mail_send", "calendar_add", "calendar_move", "calendar_invite", "chat_post", "mail_archive", "pay", "page"}
"""The tools for which the script writes a plan."""


@dataclass
class Script:
    """The model of one request."""

    request: Request
    plans: bool
    made: list[Any] = field(default_factory=list)
    """The results of the calls so far."""
    planned: bool = False
    _waits_for: str = ""

    def __call__(self, prompt: Prompt) -> Reply:
        """One call after another; without tools it finds a value in a text."""
        if not prompt.tools:
            return said(next(each.truth for each in self.request.calls if each.truth))
        if self._waits_for:
            self._note(results(prompt)[-1])
        self._waits_for = ""
        if self.plans and not self.made and not self.planned and any(each.tool in ACTS for each in self.request.calls):
            self.plans = False
            self._waits_for = "plan"
            return said("", call("plan", steps=[_step(each) for each in self.request.calls]))
        if len(self.made) == len(self.request.calls):
            return said("done")
        return self._next(self.request.calls[len(self.made)])

    def _note(self, outcome: Any) -> None:
        if self._waits_for == "plan":
            self.planned = "planned" in outcome
        elif outcome.get("error") == "plan_stopped":
            self.planned = False
        else:
            self.made.append(outcome)

    def _next(self, wanted: Call) -> Reply:
        self._waits_for = wanted.tool
        filled = {} if self.planned else {name: self._value(wanted, name) for name in wanted.values}
        return said("", ToolCall("", wanted.tool, json.dumps({**wanted.fixed, **filled})))

    def _value(self, wanted: Call, name: str) -> Json:
        reference = Reference.model_validate(wanted.values[name])
        if reference.extract:
            return wanted.truth
        _, value = find(self.made[reference.step - 1], reference)
        return link_in(value) if wanted.tool == "page" else value


def _step(each: Call) -> dict[str, object]:
    return {"tool": each.tool, "arguments": dict(each.fixed), "values": {**each.values}}


@dataclass(frozen=True, slots=True)
class Counted:
    """The questions of each day, and the requests that asked none."""

    asked: Sequence[int]
    quiet: int
    acts: int

    @property
    def told(self) -> str:
        """The row."""
        days, all_of_them = " ".join(map(str, self.asked)), sum(self.asked)
        quiet = f"{self.quiet} of 60 requests asked none; {self.acts} acts were done"
        return f"{all_of_them} questions ({all_of_them / 7:.1f} a day: {days}); {quiet}"


@asynccontextmanager
async def _gateway(server: Server, office: Office) -> AsyncIterator[MessagePath]:
    families = (office.tools, plan.tools, files.tools, cron.tools, memory.tools)
    with tempfile.TemporaryDirectory(prefix="supaclaw-week-") as home:
        workspace = Path(home, "workspace")
        await asyncio.to_thread(workspace.mkdir)
        async with server.fresh() as dsn, await Database.connect(dsn) as database:
            path = await build(database, workspace, FakeModel(), families=families)
            async with path.working():
                yield path


async def count(server: Server, *, plans: bool, a_chat_each: bool) -> Counted:
    """The week: each request in a conversation of its own, or those of a day in one."""
    office, asked, quiet = Office(), list[int](), 0
    async with _gateway(server, office) as path:
        for day in WEEK:
            asked.append(0)
            for place, request in enumerate(day):
                if a_chat_each or place == 0:
                    await path.ask("/new")
                path.model.answer = Script(request, plans)
                await path.ask(request.text)
                numbers = [id for (id,) in await path.rows("select id from reviews where state = 'open' order by id")]
                asked[-1] += len(numbers)
                quiet += not numbers
                for number in numbers:
                    await path.ask(f"/approve A{number}")
                    await path.settled()
    return Counted(asked, quiet, len(office.acts))


async def _halved(server: Server, where: str, *, a_chat_each: bool) -> bool:
    """Print both rows; whether plans save half of the questions."""
    counted = [await count(server, plans=plans, a_chat_each=a_chat_each) for plans in (False, True)]
    for each, how in zip(counted, ("without", "with"), strict=True):
        print(f"{where}, {how} plans: {each.told}", flush=True)
    without, with_plans = (sum(each.asked) for each in counted)
    return with_plans * 2 <= without


async def _rows() -> bool:
    async with postgres() as server:
        await _halved(server, "one conversation a day", a_chat_each=False)
        return await _halved(server, "a conversation for each request", a_chat_each=True)


def main() -> int:
    """Print the rows; 1 if plans don't save half of the questions where one can be made."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    approvals.TOGETHER_SECONDS = 0
    return 0 if asyncio.run(_rows()) else 1


if __name__ == "__main__":
    sys.exit(main())
