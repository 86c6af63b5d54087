"""The owner's time zone, and times in it."""

import os
from datetime import datetime, timedelta

from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.domain.errors import OwnerMustAct
from gateway.domain.zones import zone
from gateway.workspace.prompts import Persona
from gateway.workspace.tree import Workspace
from gateway.workspace.zone import zone_in


def own_zone() -> str | None:
    """What config.json or USER.md names; None if neither does."""
    environment = Environment.read(os.environ)
    owner, workspace = load(environment.config, os.environ).owner, Workspace(environment.workspace)
    return owner.timezone or zone_in(Persona(workspace).user(workspace))


def moment(text: str | None, *, end: bool = False) -> datetime | None:
    """A date or time as somebody types it, in their zone; a date is its first moment, with `end` that of the next day.

    Raises `OwnerMustAct`.
    """
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        if end and len(text) == len("2026-03-01"):
            at += timedelta(days=1)
    except (ValueError, OverflowError):
        raise OwnerMustAct(f'"{text}" is not a date or time; write it like 2026-03-01 or 2026-03-01T09:30') from None
    return at if at.tzinfo else at.replace(tzinfo=zone(own_zone() or "UTC"))
