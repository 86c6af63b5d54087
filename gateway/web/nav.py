"""What a screen says about itself."""

from dataclasses import dataclass

from fastapi import APIRouter


@dataclass(frozen=True, slots=True)
class Nav:
    """An entry of the sidebar; `icon` is one of static/vendor/icons.svg, lower places come first."""

    path: str
    label: str
    icon: str
    place: int


@dataclass(frozen=True, slots=True)
class Screen:
    """A screen: its entry and its routes."""

    nav: Nav
    router: APIRouter
