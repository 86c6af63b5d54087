"""A provider's error message for a request it refused."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.llm.errors import ModelError, classify

_MAX_SHOWN = 2_000


class Refusal(BaseModel):
    """An error in OpenAI's format, as a whole body or inside a stream."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)

    message: str = ""
    code: str | int | None = None
    type: str | None = None
    param: str | None = None

    def as_error(self, status: int | None = None, headers: Mapping[str, str] | None = None) -> ModelError:
        """As a `ModelError`; without an HTTP status, a numeric code serves as one."""
        if status is None and isinstance(self.code, int):
            status = self.code
        code = self.code if isinstance(self.code, str) else self.type
        return classify(status, code, self.message or f"HTTP status {status}", headers)


class _Body(Refusal):
    """The error, wrapped in `error` or not."""

    error: Refusal | str | None = None
    detail: str = ""


def refusal_in(body: bytes) -> Refusal:
    """Parse the body of a refused request; if its form is unknown, quote its beginning."""
    try:
        parsed = _Body.model_validate_json(body)
    except ValidationError:
        return Refusal(message=" ".join(body[:_MAX_SHOWN].decode("utf-8", "replace").split()))
    if isinstance(parsed.error, Refusal):
        return parsed.error
    message = parsed.error or parsed.message or parsed.detail
    return Refusal(message=message, code=parsed.code, type=parsed.type, param=parsed.param)
