"""Connecting a channel that a person logs in to: who it is, the number for a code, the picture to scan."""

import re
from functools import lru_cache

from markupsafe import Markup

from gateway.domain.channel import LoginChannel
from gateway.web.errors import Refused
from gateway.web.site import Site

_PHONE = re.compile(r"[1-9][0-9]{6,14}")
_LONGEST = 1000
"""Characters of a QR code: what is longer no phone reads from a screen."""


def find(site: Site, name: str) -> LoginChannel:
    """The channel of that name; raises `Refused` when there is none that is connected like this."""
    channel = site.backend.logins().get(name)
    if channel is None:
        raise Refused(404, "not_found", f"{name} is no channel with a login; see channels in config.json.")
    return channel


def digits_of(phone: str) -> str:
    """A phone number as people write it, as digits with the country; raises `Refused`."""
    digits = re.sub(r"[\s()./-]", "", phone).removeprefix("+").removeprefix("00")
    if not _PHONE.fullmatch(digits):
        message = "Write the phone number with its country code, like +49 170 1234567."
        raise Refused(400, "invalid_phone", message, param="phone")
    return digits


@lru_cache(maxsize=4)
def qr_picture(text: str) -> Markup:
    """The QR code as SVG, black on white whatever the theme; empty for what none can hold."""
    from segno import make

    if len(text) > _LONGEST:
        return Markup()
    drawn = make(text, error="m").svg_inline(border=3, light="#fff", svgclass=None, lineclass=None, omitsize=True)
    return Markup(drawn)
