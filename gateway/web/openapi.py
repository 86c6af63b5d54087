"""The OpenAPI document: FastAPI's, with the credential that each route requires and the errors that are really sent."""

from http import HTTPStatus
from typing import Any, assert_never

from fastapi import FastAPI

from gateway.web.auth.security import Entry

_TEXT = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "param": _TEXT, "code": _TEXT},
        }
    },
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "claw_…"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "claw", "description": "`__Host-claw` behind https"},
}


class DocumentedApp(FastAPI):
    """An app whose document is completed by the `entries`, when it is first asked for."""

    entries: tuple[Entry, ...] = ()

    def openapi(self) -> dict[str, Any]:
        """The document."""
        if self.openapi_schema is None:
            schema = super().openapi()
            components = schema.setdefault("components", {})
            used = {name: each for name, each in components.get("schemas", {}).items() if "ValidationError" not in name}
            components |= {"securitySchemes": _SCHEMES, "schemas": {**used, "Error": _ERROR}}
            for entry in self.entries:
                operations = schema["paths"].get(entry.route.path, {})
                for method in operations.keys() & {name.lower() for name in entry.route.methods or ()}:
                    _complete(operations[method], entry)
        return self.openapi_schema or {}


def _complete(operation: dict[str, Any], entry: Entry) -> None:
    scheme = entry.requirement.scheme
    operation["security"] = [{scheme: []}] if scheme in _SCHEMES else []
    responses = operation["responses"]
    responses.pop("422", None)
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status in _errors(entry):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase})
    for status, response in responses.items():
        if status >= "400":
            response.setdefault("content", content)


def _errors(entry: Entry) -> set[int]:
    """What the guard and the handlers of errors send; a route declares its own `responses`."""
    found = {400, 408, 413, 421, 500, 503}
    match entry.requirement.scheme:
        case "public":
            found |= {403}
        case "webhook":
            found |= {401, 429}
        case "bearer" | "cookie":
            found |= {401, 403, 409, 429}
        case unreachable:
            assert_never(unreachable)
    return found | ({404} if "{" in entry.route.path else set())
