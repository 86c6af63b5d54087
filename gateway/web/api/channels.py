"""Logging a channel in to an account, by a QR code or by a code typed on the phone."""

from dataclasses import dataclass

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gateway.domain.channels.channel import Login
from gateway.domain.people.scopes import Scope
from gateway.web.auth import logins
from gateway.web.auth.access import needs
from gateway.web.site import AtSite

router = APIRouter(prefix="/api/channels/{name}", dependencies=[Depends(needs(Scope.ADMIN))])


class Phone(BaseModel):
    """The phone number to connect, with country code."""

    phone: str = Field(max_length=40)


@dataclass(frozen=True, slots=True)
class PairCode:
    """The code to type on that phone."""

    code: str


@router.get("/login")
async def login(site: AtSite, name: str) -> Login:
    """The state of the login; `qr` is the content of the QR code."""
    return logins.find(site, name).login()


@router.post("/login")
async def request_code(site: AtSite, name: str, wanted: Phone) -> PairCode:
    """Request a code instead of the QR code."""
    return PairCode(await logins.find(site, name).request_code(logins.digits_of(wanted.phone)))


@router.post("/logout", status_code=204)
async def logout(site: AtSite, name: str) -> Response:
    """Log out of the account and start a new login."""
    await logins.find(site, name).logout()
    return Response(status_code=204)
