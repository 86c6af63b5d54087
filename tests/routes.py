"""Builds FastAPI's route contexts once a process: they take a quarter of a second per app and are equal in all."""

from typing import Any
from unittest.mock import MagicMock

from fastapi.routing import _IncludedRouter
from starlette.routing import BaseRoute

from gateway.web.server import build_app

METHOD = "_build_effective_context"
"""Its result depends on the route and on whether the router is documented: `build_app` gives prefixes to none."""


class RoutesBuiltOnce:
    """Takes the method's place, for all apps of the process."""

    def __init__(self) -> None:
        self._build = getattr(_IncludedRouter, METHOD)
        self._built: dict[tuple[int, bool], tuple[BaseRoute, Any]] = {}

    def __get__(self, included: _IncludedRouter, owner: type) -> Any:
        def build(route: BaseRoute) -> Any:
            context = included.include_context
            assert not context.prefix, "the result would depend on it"
            key = id(route), context.include_in_schema
            if key not in self._built:
                self._built[key] = route, self._build(included, route)
            return self._built[key][1]

        return build


def build_in_advance() -> None:
    """For processes that fork."""
    setattr(_IncludedRouter, METHOD, RoutesBuiltOnce())
    for route in build_app(MagicMock(access=MagicMock(public_url=None))).routes:
        if isinstance(route, _IncludedRouter):
            route.effective_candidates()
