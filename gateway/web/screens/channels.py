"""Channels: the state of each messenger, and the login of those that need one."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import Form

from gateway.config.channels import channel_names
from gateway.domain.channels.channel import Login
from gateway.web.api import logins
from gateway.web.auth.access import OWNER
from gateway.web.http.errors import existing
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import AtSite, Site

screen = Screen("/channels", "Channels", "plug", 52)


@screen.post("/channels/{name}/test", status_code=204, dependencies=OWNER)
async def test(site: AtSite, name: str) -> None:
    """Test its credentials; the page shows the result."""
    await site.channels.probes.run(name)


@screen.post("/channels/{name}/enabled", status_code=204, dependencies=OWNER)
async def enable(site: AtSite, name: str, on: bool) -> None:
    """Switch it on or off in config.json."""
    settings = site.settings.editor
    existing(site.channels.states().get(name), f"{name} is not configured.")
    switched = {f"channels.{name}.enabled": "true" if on else "false"}
    await settings.save(wanted := settings.typed(settings.form().stamp, switched))
    await site.config_written(wanted.text)


@screen.post("/channels/{name}/login", status_code=204, dependencies=OWNER)
async def request_code(site: AtSite, name: str, phone: Annotated[str, Form(max_length=40)] = "") -> None:
    """Ask for a code instead of the QR code; it appears on the page."""
    await logins.find_channel(site, name).request_code(logins.digits_of(phone))


@screen.post("/channels/{name}/logout", status_code=204, dependencies=OWNER)
async def logout(site: AtSite, name: str) -> None:
    """Log out of the account."""
    await logins.find_channel(site, name).logout()


async def _pieces(site: Site) -> Mapping[str, str]:
    channels = site.channels.states()
    missing = [name for name in channel_names() if name not in channels]
    made: dict[str, str] = {"empty": site.pages.part("no_channels", missing)}
    for name, state in channels.items():
        variable, tested = site.settings.variable_of(f"channels.{name}"), site.channels.probes.results.get(name)
        made[f"channel-{name}"] = site.pages.piece(
            "channel.html", name=name, state=state, variable=variable, tested=tested
        )
        if (channel := site.channels.logins().get(name)) is not None:
            made |= await asyncio.to_thread(_login, site, name, channel.login())
    if channels and missing:
        made["add-channel"] = site.pages.piece("add_channel.html", missing=missing)
    return made


def _login(site: Site, name: str, login: Login) -> dict[str, str]:
    """The form is a piece of its own, so that a new QR code does not take away what is being typed."""
    picture = logins.qr_picture(login.qr) if login.qr and not login.code else ""
    made: dict[str, str] = {f"login-{name}": site.pages.part("login", f"login-{name}", name, login, picture)}
    if login.state in {"starting", "waiting"}:
        made[f"phone-{name}"] = site.pages.part("phone", f"phone-{name}", name)
    return made


add_board(screen, _pieces)
