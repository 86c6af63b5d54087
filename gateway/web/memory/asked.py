"""What the page asks the memory for: the fields of its form, which are also its address."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.domain.memory import Category, Filter, Kind
from gateway.domain.principals import Label
from gateway.web.http.fields import Text

MOST_CHOSEN = 50
Id = Annotated[int, Field(ge=1, lt=2**63)]


class Asked(BaseModel):
    """An empty field is not there; days are UTC's, `until` included. `id` names rows instead of looking for them."""

    model_config = ConfigDict(frozen=True)

    q: Text = Field("", max_length=1_000)
    kind: Kind | None = None
    category: Category | None = None
    tag: Text = Field("", max_length=200)
    since: date | None = None
    until: date | None = None
    agent: Text = Field("", max_length=200)
    pinned: bool | None = None
    untrusted: bool = False
    replaced: bool = False
    skip: int = Field(0, ge=0, le=1_000_000)
    id: tuple[Id, ...] = Field((), max_length=MOST_CHOSEN)

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, fields: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in fields.items() if value != ""}

    @property
    def narrow(self) -> bool:
        """Whether it leaves anything out by a filter."""
        shown = self.model_dump(exclude={"q", "skip", "id", "untrusted", "replaced"}, exclude_defaults=True)
        return bool(shown)

    @property
    def filter(self) -> Filter:
        """Which rows count; without words to look for, memories only."""
        browsed = () if self.q.strip() else (Kind.MEMORY,)
        return Filter(
            kinds=(self.kind,) if self.kind else browsed,
            categories=(self.category,) if self.category else (),
            tags=tuple(filter(None, (tag.strip().casefold() for tag in self.tag.split(",")))),
            agent=self.agent or None,
            since=_midnight(self.since),
            until=_midnight(self.until, days=1),
            pinned=self.pinned,
            at_most=Label.UNTRUSTED if self.untrusted else Label.KNOWN,
            superseded=self.replaced,
        )


def _midnight(day: date | None, *, days: int = 0) -> datetime | None:
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=days)
