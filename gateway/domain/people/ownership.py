"""What the owner has to settle about who the owner is."""

from collections.abc import Collection, Iterator, Mapping


def unsettled(
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
