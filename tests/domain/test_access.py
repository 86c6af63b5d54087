from datetime import UTC, datetime

import pytest

from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.people.access import (
    Access,
    AccessMode,
    KnownIdentities,
    admitted,
    group_identity_of,
    identity_of,
    is_group,
    role_of,
)
from gateway.domain.principals import Role

ADA = KnownIdentities(owner=("fake:1",))


def by(sender: str, channel: str = "fake", *, private: bool = True) -> Inbound:
    at = Address(channel, "bot", "room")
    return Inbound(at, Sender(sender, "Ada"), "hi", "m1", datetime.now(UTC), private=private, as_owner=True)


@pytest.mark.parametrize("mode", ["owner", "allowlist", "pairing", "open"])
def test_the_owner_is_the_owner_under_every_rule(mode: AccessMode) -> None:
    assert role_of(by("1"), ADA, {"fake": Access(mode)}) is Role.OWNER
    assert role_of(by("1"), ADA, {}) is Role.OWNER


def test_the_same_number_on_another_channel_is_somebody_else() -> None:
    assert role_of(by("1", "other"), ADA, {"other": Access()}) is Role.STRANGER


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
    assert role_of(by("2"), ADA, {"fake": access}) is role


def test_a_channel_without_a_rule_is_the_owners() -> None:
    assert role_of(by("2"), ADA, {}) is Role.STRANGER


@pytest.mark.parametrize("mode", ["owner", "allowlist", "pairing", "open"])
def test_who_was_let_in_by_a_code_counts_where_codes_do(mode: AccessMode) -> None:
    known = KnownIdentities(("fake:1",), paired=("fake:2",))
    role = role_of(by("2"), known, {"fake": Access(mode)})
    assert role is (Role.MEMBER if mode in {"pairing", "open"} else Role.STRANGER)


def test_a_joined_account_is_let_in_as_long_as_its_person_is() -> None:
    both = ("fake:2", "other:B")
    known = KnownIdentities(("fake:1",), linked=dict.fromkeys(both, both))
    inside, outside, owners = Access(allow=frozenset({"2"})), Access(), Access("owner")
    assert role_of(by("B", "other"), known, {"fake": inside, "other": outside}) is Role.MEMBER
    assert role_of(by("B", "other"), known, {"fake": outside, "other": outside}) is Role.STRANGER
    assert role_of(by("B", "other"), known, {"fake": inside, "other": owners}) is Role.STRANGER
    assert role_of(by("C", "other"), known, {"fake": inside, "other": outside}) is Role.STRANGER


@pytest.mark.parametrize("mode", ["owner", "allowlist", "pairing"])
def test_in_a_group_only_those_let_in_count_unless_the_group_is(mode: AccessMode) -> None:
    people, group = Access(mode, frozenset({"2"})), Access(mode, frozenset({"room"}))
    named = Role.STRANGER if mode == "owner" else Role.MEMBER
    assert role_of(by("2", private=False), ADA, {"fake": people}) is named
    assert role_of(by("3", private=False), ADA, {"fake": people}) is Role.STRANGER
    assert role_of(by("3", private=False), ADA, {"fake": group}) is named
    assert role_of(by("3", private=True), ADA, {"fake": group}) is Role.STRANGER


def test_a_person_and_a_group_have_identities_of_their_own() -> None:
    assert (identity_of(by("7")), group_identity_of(by("7"))) == ("fake:7", "fake:group:room")


def test_a_principal_is_let_in_by_any_of_its_identities() -> None:
    rules = {"fake": Access(), "other": Access("allowlist", frozenset({"2"}))}
    assert admitted(["fake:2", "other:2"], KnownIdentities(), rules)
    assert not admitted(["fake:2", "other:3"], KnownIdentities(), rules)
    assert not admitted([], KnownIdentities(), rules)


def test_who_paired_is_let_in_until_that_is_taken_back() -> None:
    assert admitted(["fake:2"], KnownIdentities(paired={"fake:2"}), {"fake": Access("pairing")})
    assert not admitted(["fake:2"], KnownIdentities(), {"fake": Access("pairing")})


def test_a_group_is_let_in_where_groups_may_write() -> None:
    group = [group_identity_of(by("2", private=False))]
    assert admitted(group, KnownIdentities(), {"fake": Access()})
    assert not admitted(group, KnownIdentities(), {"fake": Access(groups="off")})
    assert not admitted(group, KnownIdentities(), {"other": Access()})


@pytest.mark.parametrize(
    ("identities", "group"),
    [(["fake:group:7"], True), (["fake:group:7", "other:8"], True), (["fake:7"], False), (["fake:sub:group:7"], False)],
)
def test_a_group_is_known_by_how_its_id_begins(identities: list[str], group: bool) -> None:
    assert is_group(identities) is group
