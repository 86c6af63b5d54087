"""What another program may send to set the agent to work, checked."""

import json
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from gateway.web.accepting import KEY
from gateway.web.errors import Refused
from gateway.workspace.workflows import SOURCE

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=KEY)]


class Trigger(BaseModel):
    """What happened, as `text` or as a `payload`, and what is to be done with the answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str | None = Field(None, pattern=SOURCE, description="Where it happened; a registered token knows it.")
    text: str | None = Field(None, description="What happened, in words.")
    payload: object = Field(None, description="What happened, as any JSON; either this or `text`.")
    agent: str = "default"
    session: Name | None = Field(None, description="A conversation of the source that goes on; else each is its own.")
    deliver_to: Name | None = Field(None, description="A channel, or `none`; else where the owner wrote last.")
    idempotency_key: Name | None = Field(None, description="Sending it again with the same key is harmless.")

    @model_validator(mode="after")
    def _one_content(self) -> "Trigger":
        if (self.text is None) == (self.payload is None):
            raise PydanticCustomError("one_content", "say what happened in one of text and payload")
        return self

    @cached_property
    def content(self) -> str:
        """What happened, as text."""
        return json.dumps(self.payload, ensure_ascii=False) if self.text is None else self.text


def parse(body: bytes) -> Trigger:
    """Raises `Refused`, naming the field."""
    try:
        trigger = Trigger.model_validate(json.loads(body))
        # JSON of a depth that can just be read may be too deep to be written again.
        _ = trigger.content
    except ValidationError as error:
        raise _refused(error.errors(include_url=False, include_context=False, include_input=False)[0]) from None
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_request", "The body is not valid JSON.") from None
    return trigger


def text_of(body: bytes) -> str:
    """A body of any kind; raises `Refused` for what is not text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Refused(400, "invalid_request", "The body is not text in UTF-8.") from None


def _refused(problem: ErrorDetails) -> Refused:
    param = ".".join(map(str, problem["loc"])) or None
    if problem["type"] == "extra_forbidden":
        message = f"{param} is unknown here; known are {', '.join(Trigger.model_fields)}."
        return Refused(400, "unknown_parameter", message, param=param)
    return Refused(400, "invalid_request", f"{param or 'The request'}: {problem['msg']}", param=param)
