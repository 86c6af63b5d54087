"""Access control, by platform ids alone, and what is unclear about who the owner is."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.principals import Role

AccessMode = Literal["owner", "allowlist", "pairing", "open"]
GroupMode = Literal["off", "mention", "all"]

GROUP = "group:"


def is_group(identities: Collection[str]) -> bool:
    """Whether these, each `channel:id`, belong to a group and not to a person."""
    return any(identity.partition(":")[2].startswith(GROUP) for identity in identities)


@dataclass(frozen=True, slots=True)
class Access:
    """A channel's access rule. `"*"` in `allow` is the same as mode `open`: everyone is a member."""

    mode: AccessMode = "allowlist"
    allow: frozenset[str] = frozenset()
    groups: GroupMode = "mention"

    @property
    def anyone(self) -> bool:
        """Whether strangers are members."""
        return self.mode == "open" or (self.mode != "owner" and "*" in self.allow)

    def allows(self, id: str) -> bool:
        """Whether the rule's own allow list admits a person or a group, by platform id."""
        return self.anyone or (self.mode != "owner" and id in self.allow)


@dataclass(frozen=True, slots=True)
class KnownIdentities:
    """Known identities: the owner's, those paired by code, and those linked to one member."""

    owner: Collection[str] = frozenset()
    paired: Collection[str] = frozenset()
    linked: Mapping[str, Collection[str]] = field(default_factory=dict)
    """For each identity of a member with several: all of them."""


def identity_of(inbound: Inbound) -> str:
    """The identity of the sender: the channel and the platform's id."""
    return f"{inbound.address.channel}:{inbound.sender.id}"


def group_identity_of(inbound: Inbound) -> str:
    """The identity of the group, which counts as one principal."""
    return f"{inbound.address.channel}:{GROUP}{inbound.address.chat}"


def role_of(inbound: Inbound, known: KnownIdentities, rules: Mapping[str, Access]) -> Role:
    """The sender's role; a channel without a rule admits the owner only.

    Someone admitted on one channel is admitted by all linked accounts, except on channels in mode `owner`. In an
    admitted group, everyone is a member.
    """
    identity = identity_of(inbound)
    if identity in known.owner:
        return Role.OWNER
    rule = rules.get(inbound.address.channel)
    if rule is None or rule.mode == "owner":
        return Role.STRANGER
    if any(_is_admitted(each, known, rules) for each in known.linked.get(identity, (identity,))):
        return Role.MEMBER
    return Role.MEMBER if not inbound.private and rule.allows(inbound.address.chat) else Role.STRANGER


def admitted(identities: Collection[str], known: KnownIdentities, rules: Mapping[str, Access]) -> bool:
    """Whether a principal with these identities is still admitted; a group is if the channel allows groups."""
    return any(_is_admitted(each, known, rules) or _is_open_group(each, rules) for each in identities)


def _is_open_group(identity: str, rules: Mapping[str, Access]) -> bool:
    channel, _, id = identity.partition(":")
    return id.startswith(GROUP) and channel in rules and rules[channel].groups != "off"


def _is_admitted(identity: str, known: KnownIdentities, rules: Mapping[str, Access]) -> bool:
    channel, _, id = identity.partition(":")
    rule = rules.get(channel, Access("owner"))
    return rule.allows(id) or (rule.mode == "pairing" and identity in known.paired)


def owner_problems(
    named: Mapping[str, str], enabled: Collection[str], identities: Collection[str], unconfirmed: Collection[str]
) -> Iterator[str]:
    """Yield a line, "problem; fix", per channel whose owner is unknown, doubtful or not the one in `named`.

    `named` is config.json's id by channel; `identities` are the owner's in the database, some of them `unconfirmed`.
    """
    known: dict[str, list[str]] = {}
    for channel, _, id in (identity.partition(":") for identity in identities):
        known.setdefault(channel, []).append(id)
    for channel in sorted({*named, *enabled, *known}):
        ids, name = known.get(channel, []), named.get(channel)
        doubtful = [id for id in ids if f"{channel}:{id}" in unconfirmed and id != name]
        settle = f"`supaclaw owner set {channel}"
        if name and ids and name not in ids:
            fix = f"{settle} {name}` makes it yours, or correct owner.{channel}"
            yield f"owner.{channel} is {name}, but the owner's id in the database is {', '.join(ids)}; {fix}"
        elif doubtful:
            fix = f"if it is you, {settle} {name or doubtful[0]}`, else the same with your own id"
            yield f"{', '.join(doubtful)} counts as you on {channel}, perhaps only because `allow` began with it; {fix}"
        elif not name and not ids:
            link = "or send the answer of /link (on the page or in `supaclaw chat`) to the agent there"
            yield f"nobody on {channel} is known to be you; set owner.{channel} to your own id, {link}"
