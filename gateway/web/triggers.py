"""Parses and validates trigger requests from other programs."""

import json
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.web.accept import KEY
from gateway.web.http.bodies import validated
from gateway.web.http.errors import Refused
from gateway.workspace.instructions import SOURCE_PATTERN

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=KEY)]


class Trigger(BaseModel):
    """A trigger: what happened, as `text` or as a `payload`, and where the answer goes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str | None = Field(
        None, pattern=SOURCE_PATTERN, description="Where it happened; optional with a source's token."
    )
    text: str | None = Field(None, description="What happened, in words.")
    payload: object = Field(None, description="What happened, as any JSON; either this or `text`.")
    agent: str = "default"
    session: Name | None = Field(None, description="The source's conversation to continue; default: a new one.")
    deliver_to: Name | None = Field(None, description="A channel, or `none`; default: where the owner wrote last.")
    idempotency_key: Name | None = Field(None, description="A repeated request with the same key is ignored.")

    @model_validator(mode="after")
    def _one_content(self) -> "Trigger":
        if (self.text is None) == (self.payload is None):
            raise PydanticCustomError("one_content", "give either text or payload")
        return self

    @cached_property
    def content(self) -> str:
        """What happened, as text."""
        return json.dumps(self.payload, ensure_ascii=False) if self.text is None else self.text


def parse(body: bytes) -> Trigger:
    """Parse a request body; raises `Refused`, naming the invalid field."""
    trigger = validated(Trigger, body)
    try:
        # JSON of a depth that can just be read may be too deep to be written again.
        _ = trigger.content
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_request", "The body is not valid JSON.") from None
    return trigger


def text_of(body: bytes) -> str:
    """The body as text; raises `Refused` if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Refused(400, "invalid_request", "The body is not text in UTF-8.") from None
