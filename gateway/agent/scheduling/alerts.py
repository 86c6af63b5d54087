"""What people are told when a schedule, or what another program sent, does not work, and when it works again."""

from datetime import datetime

from gateway.domain.conversation.transcript import Notice
from gateway.domain.work.schedules import Definition, Recurring
from gateway.timetable.wording import moment


def schedule_failed(definition: Definition, slot: datetime, reason: str) -> Notice:
    """With what it was to do: a reminder reaches its person even if no model can put it into words."""
    said = f"{_planned(definition, slot)} failed: {reason}\n\nIt was meant to do this:\n{definition.prompt}"
    again = "\n\nI won't repeat this until it works again." if isinstance(definition.when, Recurring) else ""
    return Notice(said + again)


def schedule_undelivered(definition: Definition, slot: datetime, reason: str) -> Notice:
    """For the owner, whoever it is of: without any content."""
    return Notice(f"{_planned(definition, slot)} ran, but its message wasn't delivered: {reason}")


def schedule_works(definition: Definition) -> Notice:
    """After a failure that was told."""
    return Notice(f'The schedule "{definition.name}" works again.')


def trigger_failed(source: str, reason: str) -> Notice:
    """Without what was sent: others wrote it."""
    return Notice(
        f"What {source} sent couldn't be processed: {reason}\n\nFurther failures in this hour aren't reported."
    )


def _planned(definition: Definition, slot: datetime) -> str:
    return f'The schedule "{definition.name}", planned for {moment(slot, definition.zone)},'
