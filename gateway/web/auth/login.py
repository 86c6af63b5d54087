"""Signing in with a one-time link, and signing out."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from gateway.store.people import tokens
from gateway.store.people.tokens import COOKIE_LIFE
from gateway.web.auth.access import Caller, at_page, by_cookie, client_of, public, signed_in
from gateway.web.http.errors import Refused
from gateway.web.http.origin import cookie_name
from gateway.web.site import AtSite

router = APIRouter()


class Link(BaseModel):
    """The fragment of a sign-in link."""

    secret: str = Field(max_length=200)


@router.get("/login", dependencies=[Depends(public)])
async def page(request: Request, site: AtSite) -> Response:
    """The sign-in page; given a link, its script signs in."""
    return site.pages.page(request, "login.html", title="Sign in")


@router.get("/login/state", dependencies=[Depends(public)])
async def state(request: Request) -> dict[str, bool]:
    """Whether this browser is signed in; never an error, which would show up in the browser's console."""
    return {"signed_in": await by_cookie(request) is not None}


@router.post("/login", dependencies=[Depends(public)])
async def redeem(request: Request, site: AtSite, link: Link) -> Response:
    """Exchange a link for a browser session."""
    if not at_page(request):
        raise Refused(403, "wrong_address", "Open the link exactly as printed: the page has its own address.")
    now = site.backend.clock.now()
    if not site.backend.links.redeem(link.secret, now):
        message = "This link was already used, or is older than ten minutes. Print a new one."
        raise site.throttle.failed(client_of(request), Refused(401, "invalid_link", message))
    name = request.headers.get("user-agent", "")[:200]
    _, plain = await tokens.sign_in(site.backend.database, site.backend.owner.id, name, now)
    response = JSONResponse({"signed_in": True})
    response.set_cookie(
        cookie_name(request),
        plain,
        max_age=int(COOKIE_LIFE.total_seconds()),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
        path="/",
    )
    return response


@router.post("/logout")
async def logout(
    request: Request, site: AtSite, caller: Annotated[Caller, Depends(signed_in)], everywhere: bool = False
) -> Response:
    """End this browser session, or all of them."""
    assert caller.session is not None, "signed_in sets it"
    if everywhere:
        await tokens.sign_out_everywhere(site.backend.database, site.backend.owner.id)
    else:
        await tokens.sign_out(site.backend.database, caller.session.id)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(cookie_name(request), path="/", secure=request.url.scheme == "https", httponly=True)
    return response
