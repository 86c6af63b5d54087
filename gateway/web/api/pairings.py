"""Strangers who ask to be let in, and the owner's answer."""

from fastapi import APIRouter, Depends

from gateway.domain.scopes import Scope
from gateway.store.pairings import PairingRow
from gateway.web.access import needs
from gateway.web.site import AtSite

router = APIRouter(dependencies=[Depends(needs(Scope.ADMIN))])


@router.get("/api/pairings")
async def requests(site: AtSite) -> list[PairingRow]:
    """Who waits for an answer, then who was let in."""
    return [*await site.backend.pairing.open_requests(), *await site.backend.pairing.admitted()]


@router.post("/api/pairings/{code}/approve")
async def approve(site: AtSite, code: str) -> PairingRow:
    """Let in whoever has this code."""
    return await site.backend.pairing.approve(code)


@router.post("/api/pairings/{code}/deny")
async def deny(site: AtSite, code: str) -> PairingRow:
    """Turn down the request with this code, or take back what was allowed, by its code or its `id`."""
    return await site.backend.pairing.deny(code)
