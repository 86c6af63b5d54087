"""The JSON API and the webhooks, one group of routes per file: each module here offers a `router`."""

from fastapi import APIRouter

from gateway.config.plugins import offers


def discover() -> tuple[APIRouter, ...]:
    """Every router, by file name."""
    return tuple(router for _, router in offers(__name__, "router", APIRouter))
