"""Renders pages and parts of pages from the templates; everything is escaped unless it is already `Markup`."""

import hashlib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from gateway.domain.files import PLAYABLE
from gateway.domain.text.texts import compact, one_line, size_text

HERE = Path(__file__).parent
STATIC = HERE / "static"
THEMES = frozenset({"light", "dark"})


class Screen(APIRouter):
    """A screen: its routes, and its entry in the sidebar; `icon` is one of static/vendor/icons.svg.

    `place` sorts the entries; those of one decade stand together, and those of the sixth are folded under Settings.
    """

    def __init__(self, path: str, label: str, icon: str, place: int) -> None:
        super().__init__()
        self.path, self.label, self.icon, self.place = path, label, icon, place


class Pages:
    """The page templates."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"static": cache(_static), "playable": PLAYABLE}
        self._templates.filters |= {"plain": plain, "bytes": size_text, "compact": compact}
        modules = [self._templates.get_template(name).module for name in ("parts.html", "messages.html")]
        self._macros = ChainMap(*map(vars, modules))

    def page(self, request: Request, template: str, **context: object) -> HTMLResponse:
        """Render a whole page, in the theme of the cookie."""
        theme = request.cookies.get("claw-theme", "")
        allowed = theme if theme in THEMES else ""
        return HTMLResponse(self._templates.get_template(template).render(theme=allowed, **context))

    def piece(self, template: str, **context: object) -> Markup:
        """Render a template for a part of a page."""
        return Markup(self._templates.get_template(template).render(**context))

    def part(self, macro: str, *arguments: object) -> Markup:
        """Render a macro of parts.html or messages.html."""
        rendered: Markup = self._macros[macro](*arguments)
        return rendered

    def section(self, id: str, title: str, macro: str, rows: Mapping[str, Sequence[object]]) -> dict[str, str]:
        """Pieces for rows by their ids, each the macro of its id and values, under a heading; none without rows."""
        heading: dict[str, str] = {id: self.part("heading", id, title)} if rows else {}
        return heading | {each: self.part(macro, each, *row) for each, row in rows.items()}


def plain(text: str, limit: int = 200) -> str:
    """Third-party text as one line, without characters that hide or reorder the text around it."""
    return one_line(text, limit) or "?"


def _static(name: str) -> str:
    """The file's URL, which changes with its content, so that browsers may cache it permanently."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
    return f"/static/{name}?v={digest[:10]}"
