"""Settings: every key of config.json as a form, the document beside it; a change is reviewed before it is saved."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup
from starlette.datastructures import UploadFile

from gateway.config.edit import Unwritable
from gateway.config.editing.change import Change
from gateway.config.editing.form import Field
from gateway.domain.errors import ConfigError
from gateway.web.access import by_cookie, public, signed_in
from gateway.web.errors import Refused
from gateway.web.pages import Nav, Screen
from gateway.web.site import AtSite, Site

router = APIRouter()
screen = Screen(Nav("/settings", "Settings", "wrench", 40), router)

TYPED, WRITTEN, REVERT = "settings-form", "settings-json", "settings-revert"
"""The forms of the page: fields, the document, the way back."""


@router.get("/settings", dependencies=[Depends(public)])
async def page(request: Request, site: AtSite, find: Annotated[str, Query(max_length=200)] = "") -> Response:
    """The screen, showing the keys that match `find`."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    body = _body(site)
    return site.pages.page(
        request, "settings.html", title="Settings", nav=site.nav, here="/settings", body=body, find=find
    )


@router.post("/settings/review", dependencies=[Depends(signed_in)])
async def review(request: Request, site: AtSite) -> HTMLResponse:
    """What the sent fields, or the sent document, would change."""
    values = await _sent(request)
    with _naming_the_field(site):
        return HTMLResponse(_review(site, _wanted(site, values), values["origin"]))


@router.post("/settings", dependencies=[Depends(signed_in)])
async def save(request: Request, site: AtSite) -> HTMLResponse:
    """Save what was reviewed; anything else is shown for review first."""
    values = await _sent(request)
    with _naming_the_field(site):
        wanted = _wanted(site, values)
        if values.get("reviewed") != site.backend.settings.stamp(wanted.text) and values["origin"] != REVERT:
            return HTMLResponse(_review(site, wanted, values["origin"]))
        if wanted.delicate and values.get("confirmed") != "yes":
            return HTMLResponse(_review(site, wanted, values["origin"], unconfirmed=True))
        try:
            results = await site.backend.settings.save(wanted) if wanted.sections else {}
        except Unwritable as error:
            return HTMLResponse(_review(site, wanted, values["origin"], problem=str(error)))
        return HTMLResponse(_body(site, results))


async def _sent(request: Request) -> Mapping[str, str]:
    form = await request.form()
    values = {key: value for key, value in form.items() if not isinstance(value, UploadFile)}
    if values.get("origin") not in (TYPED, WRITTEN, REVERT):
        raise Refused(400, "invalid_request", "The form is incomplete; reload the page.", param="origin")
    return values


def _wanted(site: Site, values: Mapping[str, str]) -> Change:
    settings, stamp = site.backend.settings, values.get("stamp", "")
    match values["origin"]:
        case "settings-revert":
            return settings.revert()
        case "settings-json":
            return settings.written(stamp, values.get("json", ""))
        case _:
            return settings.typed(stamp, values)


@contextmanager
def _naming_the_field(site: Site) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        message = str(error)
        keys = [field.key for field in site.backend.settings.form().fields]
        param = next((key for key in keys if f"{key}:" in message or f"{key}[" in message), None)
        raise Refused(409, "invalid_setting", message, param=param) from error


def _review(site: Site, wanted: Change, origin: str, *, unconfirmed: bool = False, problem: str = "") -> Markup:
    return site.pages.piece(
        "settings_review.html",
        wanted=wanted,
        reviewed=site.backend.settings.stamp(wanted.text),
        origin=origin,
        unconfirmed=unconfirmed,
        problem=problem,
        results=None,
    )


def _body(site: Site, results: Mapping[str, str] | None = None) -> Markup:
    form = site.backend.settings.form()
    return site.pages.piece("settings_body.html", form=form, groups=_groups(form.fields), results=results)


def _groups(fields: Sequence[Field]) -> list[tuple[str, list[Field]]]:
    """The fields by section, in order; each channel has a section of its own."""
    sections = groupby(fields, lambda field: field.path[1] if field.path[0] == "channels" else field.path[0])
    return [(name, list(each)) for name, each in sections]
