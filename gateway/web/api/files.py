"""Files of the conversation, for programs."""

from fastapi import APIRouter

from gateway.domain.people.credentials import Scope
from gateway.web.api.messages import CHANNEL
from gateway.web.auth.access import needs
from gateway.web.components import files

router = APIRouter()

files.add_routes(router, "/api/files", CHANNEL, sends=needs(Scope.CHAT), reads=needs(Scope.READ))
