"""Sign-in links for browsers, and the login of a channel, by a QR code or by a code typed on its phone."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from markupsafe import Markup
from pydantic import BaseModel, Field

from gateway.domain.channels.channel import Login, LoginChannel
from gateway.domain.conversation.inbound import LOCAL
from gateway.domain.people.credentials import Scope
from gateway.web.auth.access import Caller, needs
from gateway.web.http.errors import Refused, existing
from gateway.web.links import LIFETIME
from gateway.web.site import AtSite, Site

ADMIN = needs(Scope.ADMIN)
CHANNEL = "/api/channels/{name}"
_PHONE = re.compile(r"[1-9][0-9]{6,14}")
_MAX_QR_CHARS = 1000
"""The most characters of a QR code that a phone can read from a screen."""


def find_channel(site: Site, name: str) -> LoginChannel:
    """The channel of that name; raises `Refused` if it does not exist or has no login."""
    return existing(site.channels.logins().get(name), f"{name} has no login; see channels in config.json.")


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


router = APIRouter(dependencies=[Depends(ADMIN)])


class Phone(BaseModel):
    """The phone number to connect, with country code."""

    phone: str = Field(max_length=40)


@dataclass(frozen=True, slots=True)
class PairCode:
    """The code to type on that phone."""

    code: str


@router.get(f"{CHANNEL}/login")
async def login(site: AtSite, name: str) -> Login:
    """Get the state of the login; `qr` is the content of the QR code."""
    return find_channel(site, name).login()


@router.post(f"{CHANNEL}/login")
async def request_code(site: AtSite, name: str, wanted: Phone) -> PairCode:
    """Request a code instead of the QR code."""
    return PairCode(await find_channel(site, name).request_code(digits_of(wanted.phone)))


@router.post(f"{CHANNEL}/logout", status_code=204)
async def logout(site: AtSite, name: str) -> None:
    """Log out of the account and start a new login."""
    await find_channel(site, name).logout()


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A one-time sign-in link; `expires_in` is in seconds."""

    url: str
    expires_in: int


@router.post("/api/login-links", status_code=201)
async def issue(request: Request, site: AtSite, caller: Annotated[Caller, Depends(ADMIN)]) -> LoginLink:
    """Create a link to the page; valid once, for ten minutes.

    Only the local token may: a link makes its holder the owner.
    """
    if caller.account != LOCAL:
        message = "Only the local token makes sign-in links: run `supaclaw web` on the gateway's machine."
        raise Refused(403, "missing_scope", message)
    return LoginLink(site.access.sign_in_link(str(request.base_url)), int(LIFETIME.total_seconds()))
