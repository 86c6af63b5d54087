from uuid import uuid4

import pytest

from gateway.domain.ids import PrincipalId
from gateway.flow.homes import Homes
from gateway.flow.zones import Zones
from tests.flow.path import MessagePath


class Place:
    """The owner and a member, each with a USER.md, under a configuration that may change."""

    configured: str | None = None

    def __init__(self, path: MessagePath) -> None:
        self.homes = Homes(path.database, path.people, path.workspace, path.workspace.parent / "principals", ())
        self.zones = Zones(lambda: self.configured, path.people, lambda who: self.homes.of(who).persona().user)
        self.owner, self.member = path.people.owner.id, PrincipalId(uuid4())

    def note(self, who: PrincipalId, zone: str) -> None:
        (self.homes.of(who).workspace.root / "USER.md").write_text(f"# About the user\n\n- Time zone: {zone}\n")


@pytest.fixture
def place(path: MessagePath) -> Place:
    return Place(path)


async def test_nobodys_zone_is_known_before_they_said_it(place: Place) -> None:
    assert place.zones.of(place.owner) is None
    assert place.zones.of(place.member) is None


async def test_each_has_the_zone_in_their_own_user_md(place: Place) -> None:
    place.note(place.owner, "Europe/Berlin")
    place.note(place.member, "Asia/Tokyo")

    assert place.zones.of(place.owner) == "Europe/Berlin"
    assert place.zones.of(place.member) == "Asia/Tokyo"


async def test_the_configuration_decides_for_the_owner_and_for_nobody_else(place: Place) -> None:
    place.note(place.owner, "Europe/Berlin")
    place.configured = "America/St_Johns"

    assert place.zones.of(place.owner) == "America/St_Johns"
    assert place.zones.of(place.member) is None


async def test_a_change_counts_at_once(place: Place) -> None:
    place.note(place.owner, "Europe/Berlin")
    before = place.zones.of(place.owner)
    place.note(place.owner, "Pacific/Apia")

    assert (before, place.zones.of(place.owner)) == ("Europe/Berlin", "Pacific/Apia")
