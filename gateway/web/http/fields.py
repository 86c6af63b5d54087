"""Fields of requests: texts that can be stored, and moments."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from gateway.domain.text.texts import storable

_FIRST, _LAST = 1900, 2200


def _in_reach(at: datetime) -> datetime:
    if not _FIRST <= at.year < _LAST:
        raise ValueError(f"give a time between {_FIRST} and {_LAST}")
    return at if at.tzinfo else at.replace(tzinfo=UTC)


Text = Annotated[str, AfterValidator(storable)]
Name = Annotated[str, AfterValidator(storable), StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Moment = Annotated[datetime, AfterValidator(_in_reach)]
"""An ISO date or time; UTC unless it says otherwise."""
