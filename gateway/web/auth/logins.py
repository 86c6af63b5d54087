"""Helpers to log a channel in: by QR code, or by a code for a phone number."""

import re
from functools import lru_cache

from markupsafe import Markup

from gateway.domain.channels.channel import LoginChannel
from gateway.web.http.errors import Refused
from gateway.web.site import Site

_PHONE = re.compile(r"[1-9][0-9]{6,14}")
_MAX_QR_CHARS = 1000
"""The most characters of a QR code that a phone can read from a screen."""


def find(site: Site, name: str) -> LoginChannel:
    """The channel of that name; raises `Refused` if it does not exist or has no login."""
    channel = site.backend.logins().get(name)
    if channel is None:
        raise Refused(404, "not_found", f"{name} has no login; see channels in config.json.")
    return channel


def digits_of(phone: str) -> str:
    """The digits of a phone number, country code included; raises `Refused`."""
    digits = re.sub(r"[\s()./-]", "", phone).removeprefix("+").removeprefix("00")
    if not _PHONE.fullmatch(digits):
        message = "Enter the phone number with its country code, like +49 170 1234567."
        raise Refused(400, "invalid_phone", message, param="phone")
    return digits


@lru_cache(maxsize=4)
def qr_picture(text: str) -> Markup:
    """The QR code as SVG, black on white in any theme; empty if the text is too long."""
    from segno import make

    if len(text) > _MAX_QR_CHARS:
        return Markup()
    drawn = make(text, error="m").svg_inline(border=3, light="#fff", svgclass=None, lineclass=None, omitsize=True)
    return Markup(drawn)
