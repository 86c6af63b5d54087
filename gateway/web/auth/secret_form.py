"""The form behind a one-time link: a person without page or terminal gives a credential of their own."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gateway.domain.errors import OwnerMustAct
from gateway.secrets.facts import check_value
from gateway.web.auth.access import at_page, client_of, public
from gateway.web.http.errors import Refused
from gateway.web.http.fields import Text
from gateway.web.site import AtSite

log = structlog.get_logger(__name__)
router = APIRouter()


class Given(BaseModel):
    """The fragment of the link, and what was typed."""

    secret: str = Field(max_length=200)
    value: Annotated[Text, Field(max_length=3_000)]


@router.get("/secret", dependencies=[Depends(public)])
async def page(request: Request, site: AtSite) -> Response:
    """The form; it tells nothing by itself."""
    return site.pages.page(request, "secret_form.html", title="Enter a secret")


@router.post("/secret", status_code=204, dependencies=[Depends(public)])
async def give(request: Request, site: AtSite, given: Given) -> None:
    """Store it for the person that the link was sent to, bound like the shared one of its name, if there is one."""
    secrets = site.backend.secrets
    if not at_page(request) or secrets is None:
        raise Refused(403, "wrong_address", "Open the link exactly as it was sent.")
    try:
        value = check_value(given.value)
        asked = site.backend.secret_links.redeem(given.secret, site.backend.clock.now())
        if asked is None:
            message = "This link was already used, or is older than ten minutes. Ask for a new one: /secret NAME"
            raise site.throttle.failed(client_of(request), Refused(401, "invalid_link", message))
        principal, name = asked
        await secrets.vault.put(principal, name, value, shared=False, binding=secrets.binding_for(name, principal))
    except OwnerMustAct as error:
        log.warning("secrets.form_refused", problem=str(error))
        raise Refused(409, "not_stored", "It wasn't stored; the gateway's log says why. Ask its owner.") from error
    await secrets.look()
    log.info("secrets.given", name=name, principal_id=str(principal))
