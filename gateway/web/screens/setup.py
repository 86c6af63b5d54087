"""Setup: connects a model and the messengers; an empty gateway opens here."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated

from fastapi import Form, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup

from gateway.domain.errors import OwnerMustAct
from gateway.flow import setup as messengers
from gateway.flow.setup import (
    ModelRefused,
    Setup,
    connect_model,
    connect_server,
    connect_transcription,
    transcription_offers,
)
from gateway.llm.auto import GUIDE
from gateway.llm.vendors import VENDORS_WITH_KEYS, UnknownVendor, Vendor
from gateway.web.api import logins
from gateway.web.auth.access import OWNER
from gateway.web.http.errors import existing
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.screens.settings import model_names
from gateway.web.site import AtSite, Site

LATER = "claw-setup"
"""The cookie of a browser in which Setup was skipped."""
A_YEAR = 365 * 86_400
_NO_ANSWER = {"problem": "", "vendors": (), "provider": "", "model": "", "connected": None}

screen = Screen("/setup", "Setup", "wand-sparkles", 50)
_forms = cache(messengers.channel_forms)

Pasted = Annotated[str, Form(max_length=1_000)]


def comes_first(request: Request, site: Site) -> bool:
    """Whether no model is connected, and this browser's person hasn't skipped that."""
    return site.channels.setup is not None and not _answers(site) and LATER not in request.cookies


@screen.post("/setup/later", dependencies=OWNER)
async def go_on() -> RedirectResponse:
    """Skip Setup: the page opens with the chat from now on."""
    response = RedirectResponse("/", 303)
    response.set_cookie(LATER, "later", max_age=A_YEAR, httponly=True, samesite="strict", path="/")
    return response


@screen.post("/setup/model", dependencies=OWNER)
async def connect(site: AtSite, key: Pasted = "", provider: Pasted = "", model: Pasted = "") -> HTMLResponse:
    """Test a key, or another model, and save it."""
    vendors: Sequence[Vendor] = VENDORS_WITH_KEYS if provider else ()
    try:
        return _answer(site, connected=await connect_model(_setup(site), key, provider, model))
    except UnknownVendor as error:
        return _answer(site, problem=str(error), vendors=error.vendors, provider=provider, model=model)
    except ModelRefused as error:
        return _answer(site, problem=str(error), vendors=vendors, provider=provider, model=error.model)
    except OwnerMustAct as error:
        return _answer(site, problem=str(error), vendors=vendors, provider=provider)


@screen.post("/setup/server", dependencies=OWNER)
async def connect_own_server(site: AtSite, address: Pasted, model: Pasted, key: Pasted = "") -> HTMLResponse:
    """Test a model of a server with this address, and save both."""
    try:
        return _answer(site, connected=await connect_server(_setup(site), address, model, key))
    except OwnerMustAct as error:
        return _answer(site, problem=str(error))


@screen.get("/setup/voice", dependencies=OWNER)
async def offer_transcription(site: AtSite) -> HTMLResponse:
    """The models that could transcribe voice notes; looks for servers on this machine."""
    return HTMLResponse(_piece(site, "offers", offers=await transcription_offers(_setup(site))))


@screen.post("/setup/voice", dependencies=OWNER)
async def transcribe(site: AtSite, model: Pasted) -> HTMLResponse:
    """Let a model transcribe voice notes."""
    try:
        return _answer(site, connected=connect_transcription(_setup(site), model))
    except OwnerMustAct as error:
        return _answer(site, problem=str(error))


@screen.post("/setup/channels/{name}", dependencies=OWNER)
async def connect_channel(request: Request, site: AtSite, name: Annotated[str, Path(max_length=40)]) -> HTMLResponse:
    """Test the tokens of a messenger, save them, and offer a code for the owner's own account there."""
    form = {field: value for field, value in (await request.form()).items() if isinstance(value, str)}
    try:
        connected = await messengers.connect_channel(_setup(site), name, form)
    except OwnerMustAct as error:
        return _answer(site, problem=str(error).removeprefix(f"channels.{name}."))
    await site.channels.pairing.offer()
    return _answer(site, connected=connected)


@screen.post("/setup/code", status_code=204, dependencies=OWNER)
async def offer(site: AtSite) -> None:
    """Make a new code; the page shows it by its events."""
    await site.channels.pairing.offer()


def _setup(site: Site) -> Setup:
    return existing(site.channels.setup, "Nothing can be connected here.")


def _answers(site: Site) -> str:
    """The model that answers; "" while the guide does."""
    described = site.settings.model()
    return "" if described is None or described.active == GUIDE else described.active


def _answer(site: Site, **context: object) -> HTMLResponse:
    return HTMLResponse(site.pages.piece("setup.html", show="answer", **{**_NO_ANSWER, **context}))


async def _pieces(site: Site) -> Mapping[str, str]:
    pairing, described, model = site.channels.pairing, site.settings.model(), _answers(site)
    made: dict[str, str] = {
        "empty": Markup('<div id="empty"></div>'),
        "setup-intro": _piece(site, "intro", model=model),
    }
    made |= {f"joins{row.code}": site.pages.part("joins", f"joins{row.code}", row) for row in await pairing.claims()}
    names = await asyncio.to_thread(model_names, site) if model else ()
    shown = {"model": model, "described": described, "vendors": VENDORS_WITH_KEYS, "models": names}
    made["setup-model"] = _piece(site, "model", **shown)
    if model and site.channels.setup is not None:
        made["setup-voice"] = _piece(site, "voice", transcriber=site.channels.setup.config().models.transcription)
    owner, code = (await pairing.accounts())[:1], await pairing.offered() or ""
    states = {name: state for name, state in site.channels.states().items() if state != "disabled"}
    identities = [each for row in owner for each in row.identities]
    for form in await asyncio.to_thread(_forms):
        link = site.channels.deep_link(form.name, code) if code else ""
        made[f"setup-{form.name}"] = _piece(
            site,
            "channel",
            form=form,
            state=states.get(form.name, ""),
            mine=[each.partition(":")[2] for each in identities if each.startswith(f"{form.name}:")],
            code=code,
            link=link,
            picture=await asyncio.to_thread(logins.qr_picture, link) if link else "",
            login=form.name in site.channels.logins(),
        )
    return made


def _piece(site: Site, show: str, **context: object) -> Markup:
    return site.pages.piece("setup.html", show=show, **context)


add_board(screen, _pieces)
