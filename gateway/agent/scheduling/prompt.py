"""What the agent is given when a schedule's slot has come."""

from datetime import datetime, timedelta

from gateway.domain.text.marks import without_marks
from gateway.domain.text.texts import one_line
from gateway.domain.work.assignment import QUIET, Assignment
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.timetable.wording import in_words, moment

ON_TIME = timedelta(minutes=1)
LONGEST_NAME = 200

ORDERS = f"""\
Nobody is waiting for this and nobody can answer a question now. Your answer is sent to the user as it is, so write \
what the user is to read and nothing else. If there is nothing to tell, answer exactly: {QUIET}"""


def assignment(row: ScheduleRow, slot: datetime, *, now: datetime, missed: int = 0) -> Assignment:
    """The work of one slot; `missed` slots before it were not run."""
    definition = row.definition
    name = one_line(definition.name, LONGEST_NAME)
    head = [
        f"Scheduled task {row.id}: {name}",
        f"Schedule: {in_words(definition)}",
        f"Planned for: {moment(slot, definition.zone)}",
    ]
    if now - slot > ON_TIME:
        head.append(f"Late: it is {moment(now, definition.zone)} now")
    if missed:
        head.append(f"Missed before it and not run: {missed}")
    return Assignment(
        prompt="\n".join([*head, "", ORDERS, "", without_marks(definition.prompt)]),
        name=name,
        origin="schedule",
        label=row.label,
        address=row.address_id,
        history=definition.include_session_history,
        schedule=row.id,
        slot=slot,
    )
