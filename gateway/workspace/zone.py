"""The user's time zone, as noted in USER.md."""

import re

from gateway.domain.zones import is_zone

_LINE = re.compile(r"^[ \t>*+_-]*time[ _-]?zone[ *_]*[:=](.*)$", re.IGNORECASE | re.MULTILINE | re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_+/-]+", re.ASCII)


def zone_in(user: str) -> str | None:
    """The zone of the first line like "- Time zone: Europe/Berlin" with a known zone; None if there is none.

    Only IANA names count: other forms ("Berlin", "UTC+2") are ambiguous.
    """
    for line in _LINE.findall(user):
        names: list[str] = [name.strip("_") for name in _NAME.findall(line)]
        for name in (*names[:1], *(each for each in names if "/" in each)):
            if is_zone(name):
                return name
    return None


def with_zone(user: str, name: str) -> str:
    """The text with this zone in place of the one it names, else in its first line for one, else in a new line."""
    known = zone_in(user)
    for line in _LINE.finditer(user):
        said = line[0].rstrip()
        noted = f"{said} ({name})" if line[1].strip(" *_\t\r") else f"{said} {name}"
        noted = said.replace(known, name) if known else noted
        filled = f"{user[: line.start()]}{noted}{user[line.start() + len(said) :]}"
        if zone_in(filled) == name:
            return filled
    return f"{user.rstrip()}\n\n- Time zone: {name}\n"
