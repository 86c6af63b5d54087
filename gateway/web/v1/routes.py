"""The OpenAI-compatible routes: models, chat completions, completions and responses."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from gateway.domain.work.trees import MODELS
from gateway.web.auth.access import Caller
from gateway.web.http.bodies import parsed
from gateway.web.http.errors import Refused
from gateway.web.site import AtSite, Site
from gateway.web.v1 import responses, wire
from gateway.web.v1.request import parse, parse_prompt
from gateway.web.v1.serving import Chatter, SessionHeaders, serve
from gateway.web.v1.wire import Completion, ResponseObject, TextCompletion

router = APIRouter()
Headers = Annotated[SessionHeaders, Depends()]


async def _names(site: Site, caller: Caller) -> Sequence[str]:
    """The agents that this caller may ask, the one that people chat with first; members have only that one."""
    if caller.member is not None:
        return MODELS
    agents = site.trees.agents
    return [*MODELS, *[agent.slug for agent in await agents.trusted()]]


@router.get("/v1/models")
async def models(site: AtSite, caller: Chatter) -> Response:
    """List the agents that can answer."""
    created = int(site.clock.now().timestamp())
    return JSONResponse(
        {"object": "list", "data": [wire.model_entry(name, created) for name in await _names(site, caller)]}
    )


@router.get("/v1/models/{name}")
async def model(site: AtSite, caller: Chatter, name: str) -> Response:
    """Get one agent."""
    if name not in await _names(site, caller):
        raise Refused(404, "model_not_found", f"The model '{name}' does not exist.", param="model")
    return JSONResponse(wire.model_entry(name, int(site.clock.now().timestamp())))


@router.post("/v1/chat/completions", responses={404: {}, 424: {}})
async def complete(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer the last user message, in one piece or as a stream. The turn continues when the client disconnects."""
    names, body = await _names(site, caller), await request.body()
    wanted = await parsed(body, lambda body: parse(body, names))
    return await serve(
        site,
        caller,
        named,
        body,
        wanted,
        lambda id, at: Completion(f"chatcmpl-{id or 0}", wanted.model, at, wanted.include_usage),
    )


@router.post("/v1/completions", responses={404: {}, 424: {}})
async def complete_text(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer a prompt, in the older format of completions."""
    names, body = await _names(site, caller), await request.body()
    wanted = await parsed(body, lambda body: parse_prompt(body, names))
    return await serve(
        site, caller, named, body, wanted, lambda id, at: TextCompletion(f"cmpl-{id or 0}", wanted.model, at)
    )


@router.post("/v1/responses", responses={404: {}, 424: {}})
async def respond(request: Request, site: AtSite, caller: Chatter, named: Headers) -> Response:
    """Answer in the format of the Responses API; continues from any response of the same token."""
    names, body = await _names(site, caller), await request.body()
    sent = await parsed(body, lambda body: responses.parse(body, names))
    before = await responses.earlier_until(site, caller, sent.previous) if sent.previous else ()
    wanted = sent.resolved(before, await responses.items_by_id(site, caller, sent.references))
    return await serve(
        site,
        caller,
        named,
        body,
        wanted,
        lambda id, at: ResponseObject(f"resp_{id or 0}", wanted.model, at, sent.previous),
    )
