from datetime import UTC, datetime

import pytest

from gateway.domain.access import Access, AccessMode, group_identity_of, identity_of, role_of
from gateway.domain.inbound import Address, Inbound, Sender
from gateway.domain.principals import Role

OWNER = {"fake:1"}


def by(sender: str, channel: str = "fake") -> Inbound:
    return Inbound(Address(channel, "bot", "room"), Sender(sender, "Ada"), "hi", "m1", datetime.now(UTC))


@pytest.mark.parametrize("mode", ["owner", "allowlist", "pairing", "open"])
def test_the_owner_is_the_owner_under_every_rule(mode: AccessMode) -> None:
    assert role_of(by("1"), OWNER, Access(mode)) is Role.OWNER


def test_the_same_number_on_another_channel_is_somebody_else() -> None:
    assert role_of(by("1", "other"), OWNER, Access()) is Role.STRANGER


@pytest.mark.parametrize(
    ("access", "role"),
    [
        (Access("allowlist", frozenset({"2"})), Role.MEMBER),
        (Access("pairing", frozenset({"2"})), Role.MEMBER),
        (Access("owner", frozenset({"2"})), Role.STRANGER),
        (Access("owner", frozenset({"*"})), Role.STRANGER),
        (Access("allowlist"), Role.STRANGER),
        (Access("allowlist", frozenset({"22"})), Role.STRANGER),
        (Access("allowlist", frozenset({"*"})), Role.MEMBER),
        (Access("open"), Role.MEMBER),
    ],
)
def test_others_are_let_in_by_the_channels_rule(access: Access, role: Role) -> None:
    assert role_of(by("2"), OWNER, access) is role


def test_a_person_and_a_group_have_identities_of_their_own() -> None:
    assert (identity_of(by("7")), group_identity_of(by("7"))) == ("fake:7", "fake:group:room")
