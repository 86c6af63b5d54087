"""The user's time zone, as USER.md says it."""

import re

from gateway.domain.zones import is_zone

_LINE = re.compile(r"^[ \t>*+_-]*time[ _-]?zone[ *_]*[:=](.*)$", re.IGNORECASE | re.MULTILINE | re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_+/-]+", re.ASCII)


def zone_in(user: str) -> str | None:
    """The zone in the first line like "- Time zone: Europe/Berlin" that has one; None: it says none that is known.

    Only IANA names count: what else people write ("Berlin", "UTC+2") may mean several zones.
    """
    for line in _LINE.findall(user):
        names: list[str] = [name.strip("_") for name in _NAME.findall(line)]
        for name in (*names[:1], *(each for each in names if "/" in each)):
            if is_zone(name):
                return name
    return None
