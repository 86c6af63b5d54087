"""What a provider says about a request that it does not answer."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.llm.errors import ModelError, classify

_SHOWN = 2_000


class Refusal(BaseModel):
    """An error in OpenAI's format, in a body of its own or in a stream that began well."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)

    message: str = ""
    code: str | int | None = None
    type: str | None = None
    param: str | None = None

    def as_error(self, status: int | None = None, headers: Mapping[str, str] | None = None) -> ModelError:
        """The error of an HTTP answer; without a status its code may be one."""
        if status is None and isinstance(self.code, int):
            status = self.code
        code = self.code if isinstance(self.code, str) else self.type
        return classify(status, code, self.message or f"HTTP status {status}", headers)


class _Body(Refusal):
    """What it is wrapped in, or not."""

    error: Refusal | str | None = None
    detail: str = ""


def refusal_in(body: bytes) -> Refusal:
    """What the body of a refused request says; its beginning as it is, where it has no known form."""
    try:
        told = _Body.model_validate_json(body)
    except ValidationError:
        return Refusal(message=" ".join(body[:_SHOWN].decode("utf-8", "replace").split()))
    if isinstance(told.error, Refusal):
        return told.error
    return Refusal(message=told.error or told.message or told.detail, code=told.code, type=told.type, param=told.param)
