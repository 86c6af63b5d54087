"""Settings: each key of config.json as a field, and the file itself; a change is reviewed before it is saved."""

import asyncio
from collections.abc import Mapping
from itertools import groupby
from typing import Annotated

import structlog
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup
from starlette.datastructures import UploadFile

from gateway.config.editing.config_file import Unwritable
from gateway.config.editing.editor import ConfigChange, ConfigEditor
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.time import zone_names
from gateway.llm.prices import known_models
from gateway.llm.vendors import split_model
from gateway.store.people import principals
from gateway.web.auth.access import OWNER, VISITOR
from gateway.web.http.errors import Refused
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site

log = structlog.get_logger(__name__)
screen = Screen("/settings", "General", "wrench", 51)

TYPED, WRITTEN, REVERT = "settings-form", "settings-json", "settings-revert"
"""The forms of the page: fields, the document, the way back."""


@screen.get("/settings", dependencies=VISITOR)
async def page(request: Request, site: AtSite, find: Annotated[str, Query(max_length=200)] = "") -> Response:
    """The screen, showing the keys that match `find`."""
    return site.screen(request, screen, "settings.html", body=await _body(site), find=find)


@screen.post("/settings", dependencies=OWNER)
async def save(request: Request, site: AtSite) -> HTMLResponse:
    """Save the sent fields or the sent document if they were reviewed; else show the change for review."""
    values, settings = await _sent(request), site.settings.editor
    try:
        wanted = await asyncio.to_thread(_wanted, settings, values)
        await _check_typed(site, wanted)
        reviewed = values["origin"] == REVERT or values.get("reviewed") == settings.stamp_of(wanted)
        confirmed = not wanted.delicate or values.get("confirmed") == "yes"
        if not (reviewed and confirmed):
            return _review(site, wanted, values["origin"], unconfirmed=reviewed)
        try:
            results = {**await _stored(site, wanted), **(await settings.save(wanted) if wanted.sections else {})}
            await site.config_written(wanted.text)
        except Unwritable as error:
            return _review(site, wanted, values["origin"], problem=str(error))
        return HTMLResponse(await _body(site, results))
    except OwnerMustAct as error:
        raise _naming_the_field(site, str(error)) from error


async def _check_typed(site: Site, wanted: ConfigChange) -> None:
    """Raise `ConfigError` where a typed secret would hide another one, or be hidden itself."""
    secrets = site.settings.secrets
    for each in wanted.typed:
        if secrets.environ.get(each.name) or await secrets.vault.holds(secrets.owner, each.name, shared=False):
            raise ConfigError(f"another value of {each.name} would hide this one: a variable, or a secret of your own")
        if not each.rotates and await secrets.vault.holds(secrets.owner, each.name, shared=True):
            raise ConfigError(f"there is a secret {each.name} already; enter $secret:{each.name}, or rotate it")


async def _stored(site: Site, wanted: ConfigChange) -> Mapping[str, str]:
    """Store the typed secrets; returns a line for each."""
    secrets = site.settings.secrets
    for each in wanted.typed:
        await secrets.vault.put(secrets.owner, each.name, each.value, shared=True)
        await secrets.look()
        log.info("web.secret_stored", name=each.name)
    return {f"secret {each.name}": "stored" for each in wanted.typed}


async def _sent(request: Request) -> Mapping[str, str]:
    form = await request.form()
    values = {key: value for key, value in form.items() if not isinstance(value, UploadFile)}
    if values.get("origin") not in (TYPED, WRITTEN, REVERT):
        raise Refused(400, "invalid_request", "The form is incomplete; reload the page.", param="origin")
    return values


def _wanted(settings: ConfigEditor, values: Mapping[str, str]) -> ConfigChange:
    stamp = values.get("stamp", "")
    if values["origin"] == REVERT:
        return settings.revert()
    if values["origin"] == WRITTEN:
        return settings.written(stamp, values.get("json", ""))
    return settings.typed(stamp, values)


def _naming_the_field(site: Site, message: str) -> Refused:
    keys = [field.key for field in site.settings.editor.form().fields]
    param = next((key for key in keys if f"{key}:" in message or f"{key}[" in message), None)
    return Refused(409, "invalid_setting", message, param=param)


def _review(
    site: Site, wanted: ConfigChange, origin: str, *, unconfirmed: bool = False, problem: str = ""
) -> HTMLResponse:
    stamp = site.settings.editor.stamp_of(wanted)
    context = {"origin": origin, "stamp": stamp, "unconfirmed": unconfirmed, "problem": problem}
    return HTMLResponse(site.pages.piece("settings_review.html", wanted=wanted, **context))


async def _body(site: Site, results: Mapping[str, str] | None = None) -> Markup:
    form = await asyncio.to_thread(site.settings.editor.form)
    sections = groupby(form.fields, lambda field: field.path[field.path[0] == "channels"])
    groups = [(name, list(each)) for name, each in sections]
    linked = await site.database.read(lambda conn: principals.identities(conn, site.owner.id))
    lists = {"models": await asyncio.to_thread(model_names, site), "zones": zone_names(), "linked": linked}
    return site.pages.piece("settings_body.html", form=form, groups=groups, results=results, **lists)


def model_names(site: Site) -> list[str]:
    """The models to choose from: those in use, then all known ones of their providers."""
    described = site.settings.model()
    used = described.choices if described else ()
    return list(dict.fromkeys((*used, *known_models(frozenset(split_model(name)[0] for name in used)))))
