"""The owner's time zone, and times in it."""

import os
from datetime import datetime

from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct
from gateway.domain.time import moment
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import Persona, zone_in


def own_zone() -> str | None:
    """What config.json or USER.md names; None if neither does."""
    environment = Environment.read(os.environ)
    owner, workspace = load_early(environment, os.environ).owner, Workspace(environment.workspace)
    return owner.timezone or zone_in(Persona(workspace).user(workspace))


def own_moment(text: str | None, *, end: bool = False) -> datetime | None:
    """A date or time as somebody types it, in their zone, by `zones.moment`; raises `OwnerMustAct`."""
    try:
        return None if text is None else moment(text, own_zone(), end=end)
    except ValueError:
        raise OwnerMustAct(f'"{text}" is not a date or time; write it like 2026-03-01 or 2026-03-01T09:30') from None
