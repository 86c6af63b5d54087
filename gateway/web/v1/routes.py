"""The OpenAI-compatible routes: the last user message is a turn of the agent."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from gateway.web.auth.access import Caller
from gateway.web.http.bodies import parsed
from gateway.web.http.errors import Refused
from gateway.web.site import AtSite, Site
from gateway.web.v1 import history, responses, wire
from gateway.web.v1.request import parse, parse_prompt
from gateway.web.v1.response_wire import ResponseObject
from gateway.web.v1.serving import Chatter, Named, serve
from gateway.web.v1.wire import Completion, TextCompletion

router = APIRouter()
Headers = Annotated[Named, Depends()]


async def _names(site: Site, caller: Caller) -> Sequence[str]:
    """The agents that may answer now, the one that people chat with first; the others are the owner's."""
    if caller.member is not None:
        return site.backend.models()
    agents = site.backend.trees.trees.agents
    return [*site.backend.models(), *[agent.slug for agent in await agents.trusted()]]


@router.get("/v1/models")
async def models(site: AtSite, caller: Chatter) -> Response:
    """The agents that can be asked."""
    created = int(site.backend.clock.now().timestamp())
    return JSONResponse({"object": "list", "data": [wire.model(name, created) for name in await _names(site, caller)]})


@router.get("/v1/models/{name}")
async def model(site: AtSite, caller: Chatter, name: str) -> Response:
    """One of them."""
    if name not in await _names(site, caller):
        raise Refused(404, "model_not_found", f"The model '{name}' does not exist.", param="model")
    return JSONResponse(wire.model(name, int(site.backend.clock.now().timestamp())))


@router.post("/v1/chat/completions", responses={404: {}, 424: {}})
async def complete(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer the last user message, in one piece or as it is written. The turn goes on when the client leaves."""
    names, body = await _names(site, caller), await request.body()
    asked = await parsed(body, lambda body: parse(body, names))
    return await serve(
        site,
        caller,
        named,
        body,
        asked,
        lambda id, at: Completion(f"chatcmpl-{id or 0}", asked.model, at, asked.include_usage),
    )


@router.post("/v1/completions", responses={404: {}, 424: {}})
async def complete_text(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer a prompt in the old form."""
    names, body = await _names(site, caller), await request.body()
    asked = await parsed(body, lambda body: parse_prompt(body, names))
    return await serve(
        site, caller, named, body, asked, lambda id, at: TextCompletion(f"cmpl-{id or 0}", asked.model, at)
    )


@router.post("/v1/responses", responses={404: {}, 424: {}})
async def respond(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """The same in the form of the Responses API; it goes on from any response of the same token."""
    names, body = await _names(site, caller), await request.body()
    sent = await parsed(body, lambda body: responses.parse(body, names))
    before = await history.until(site, caller, sent.previous) if sent.previous else ()
    asked = sent.resolved(before, await history.items(site, caller, sent.references))
    return await serve(
        site,
        caller,
        named,
        body,
        asked,
        lambda id, at: ResponseObject(f"resp_{id or 0}", asked.model, at, sent.previous),
    )
