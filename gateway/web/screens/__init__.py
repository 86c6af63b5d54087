"""Screens, one per file: each module here offers a `screen`."""

import importlib
import pkgutil

from gateway.web.pages import Screen


def discover() -> tuple[Screen, ...]:
    """Every screen, in the order of the sidebar."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    screens: list[Screen] = [module.screen for module in modules]
    return tuple(sorted(screens, key=lambda screen: screen.nav.place))
