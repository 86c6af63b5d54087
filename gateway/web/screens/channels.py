"""Channels: how each messenger is, and connecting those that a person logs in to."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Form

from gateway.domain.channel import Login
from gateway.web import board, logins
from gateway.web.access import signed_in
from gateway.web.pages import Nav, Screen
from gateway.web.site import AtSite, Site

router = APIRouter()
screen = Screen(Nav("/channels", "Channels", "plug", 20), router)


@router.post("/channels/{name}/login", status_code=204, dependencies=[Depends(signed_in)])
async def request_code(site: AtSite, name: str, phone: Annotated[str, Form(max_length=40)] = "") -> None:
    """Ask for a code instead of the QR code; it appears on the page."""
    await logins.find(site, name).request_code(logins.digits_of(phone))


@router.post("/channels/{name}/logout", status_code=204, dependencies=[Depends(signed_in)])
async def logout(site: AtSite, name: str) -> None:
    """Forget the account."""
    await logins.find(site, name).logout()


async def _pieces(site: Site) -> Mapping[str, str]:
    made: dict[str, str] = {"empty": site.pages.part("no_channels")}
    for name, state in site.backend.channels().items():
        made[f"channel-{name}"] = site.pages.part(
            "channel", f"channel-{name}", name, state, site.backend.variable_of(f"channels.{name}")
        )
        if (channel := site.backend.logins().get(name)) is not None:
            made |= await asyncio.to_thread(_login, site, name, channel.login())
    return made


def _login(site: Site, name: str, login: Login) -> dict[str, str]:
    """The form is a piece of its own, so that a new QR code does not take away what is being typed."""
    picture = logins.qr_picture(login.qr) if login.qr and not login.code else ""
    made: dict[str, str] = {f"login-{name}": site.pages.part("login", f"login-{name}", name, login, picture)}
    if login.state in {"starting", "waiting"}:
        made[f"phone-{name}"] = site.pages.part("phone", f"phone-{name}", name)
    return made


board.add_routes(screen, _pieces)
