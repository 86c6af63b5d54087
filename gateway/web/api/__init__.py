"""The JSON API and the webhooks, one group of routes per file: each module here offers a `router`."""

import importlib
import pkgutil

from fastapi import APIRouter


def discover() -> tuple[APIRouter, ...]:
    """Every router, by file name."""
    return tuple(importlib.import_module(f"{__name__}.{found.name}").router for found in pkgutil.iter_modules(__path__))
