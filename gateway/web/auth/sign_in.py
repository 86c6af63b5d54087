"""The pages behind one-time links: signing in and out, and the form for a person's own secret or file."""

import hmac
import re
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.secrets.facts import NAME, check_value
from gateway.store.people import tokens
from gateway.store.people.tokens import COOKIE_LIFE
from gateway.web.auth.access import SignedIn, at_page, by_cookie, client_of, public
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused
from gateway.web.http.headers import cookie_name
from gateway.web.site import AtSite, Site

router = APIRouter()


class SignInLink(BaseModel):
    """The fragment of a sign-in link."""

    secret: str = Field(max_length=200)


@router.get("/login", dependencies=[Depends(public)])
async def page(request: Request, site: AtSite) -> Response:
    """The sign-in page; given a link, its script signs in."""
    return site.pages.page(request, "login.html", title="Sign in", by_code=site.access.first_code)


@router.get("/login/state", dependencies=[Depends(public)])
async def state(request: Request) -> dict[str, bool]:
    """Whether this browser is signed in; never an error, which the browser's console would show."""
    return {"signed_in": await by_cookie(request) is not None}


@router.post("/login", dependencies=[Depends(public)])
async def redeem(request: Request, site: AtSite, link: SignInLink) -> Response:
    """Exchange a link for a browser session."""
    if not at_page(request):
        raise Refused(403, "wrong_address", "Open the link exactly as printed: the page has its own address.")
    now = site.clock.now()
    if not (site.access.links.redeem(link.secret, now) or await _spent(site, link.secret)):
        message = "This link was already used, or is older than ten minutes. Print a new one. A code works once, ever."
        raise site.throttle.failed(client_of(request), Refused(401, "invalid_link", message))
    name = request.headers.get("user-agent", "")[:200]
    _, plain = await tokens.sign_in(site.database, site.owner.id, name, now)
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


async def _spent(site: Site, code: str) -> bool:
    """Whether it is the environment's code, which is used up now."""
    first = site.access.first_code
    same = hmac.compare_digest(code.encode(), first.encode())
    return first != "" and same and await tokens.spend(site.database, code)


@router.post("/logout")
async def logout(request: Request, site: AtSite, caller: SignedIn, everywhere: bool = False) -> Response:
    """End this browser session, or all of them."""
    assert caller.session is not None, "signed_in sets it"
    await tokens.sign_out(site.database, caller.session, everywhere=everywhere)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(cookie_name(request), path="/", secure=request.url.scheme == "https", httponly=True)
    return response


log = structlog.get_logger(__name__)


class SecretForm(BaseModel):
    """The fragment of the link, and the secret's value."""

    secret: str = Field(max_length=200)
    value: Annotated[Text, Field(max_length=3_000)]


@router.get("/secret", dependencies=[Depends(public)])
async def secret_page(request: Request, site: AtSite) -> Response:
    """The form for a secret; its link's fragment says which one."""
    return site.pages.page(request, "secret_form.html", title="Enter a secret")


@router.post("/secret", status_code=204, dependencies=[Depends(public)])
async def store_secret(request: Request, site: AtSite, form: SecretForm) -> None:
    """Store a secret for the person who got the link, with the binding of the shared secret of that name.

    The password of a file opens it once and is not stored.
    """
    secrets = site.settings.secrets
    if not at_page(request):
        raise Refused(403, "wrong_address", "Open the link exactly as it was sent.")
    try:
        value = check_value(form.value)
        link = site.access.secret_links.redeem(form.secret, site.clock.now())
        if link is None:
            message = "This link was already used, or is older than ten minutes. Ask for a new one: /secret NAME"
            raise site.throttle.failed(client_of(request), Refused(401, "invalid_link", message))
        principal, name = link
        if not re.fullmatch(NAME, name):
            await _unlock(site, principal, name, value)
            return
        await secrets.vault.put(principal, name, value, shared=False, binding=secrets.binding_for(name, principal))
    except OwnerMustAct as error:
        log.warning("secrets.form_refused", problem=str(error))
        message = "Not stored; the gateway's log says why. Ask its owner, then ask for a new link: /secret NAME"
        raise Refused(409, "not_stored", message) from error
    await secrets.look()
    log.info("secrets.given", name=name, principal_id=str(principal))


async def _unlock(site: Site, principal: PrincipalId, path: str, password: str) -> None:
    try:
        await site.files.unlock(principal, path, password)
    except OwnerMustAct as error:
        raise Refused(409, "locked", f"{error}. Write /secret {path} for another form.") from error
