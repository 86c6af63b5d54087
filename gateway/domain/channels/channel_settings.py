"""The settings common to all channels: who may talk to the agent."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from gateway.domain.people.access import AccessMode, GroupMode


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


PlatformId = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int)]
"""The platform's id of a person or chat; a number is converted to a string."""


class ChannelSettings(BaseModel):
    """Base of every channel's settings; patterns match the ids of a person and a group, `IDS` says how they look.

    `VARIABLES` are the environment variables that people expect, and the field that each one sets. `STEPS` says how a
    person gets what they hold, `COPY` is a text that the platform asks for meanwhile.
    """

    TITLE: ClassVar[str] = ""
    STEPS: ClassVar[str] = ""
    COPY: ClassVar[str] = ""

    PERSON: ClassVar[str] = ".+"
    GROUP: ClassVar[str] = ".+"
    IDS: ClassVar[str] = ""
    VARIABLES: ClassVar[Mapping[str, str]] = MappingProxyType({})

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    enabled: bool = Field(True, description="false turns the channel off.")
    access: AccessMode = Field("allowlist", description="Who gets answers: owner, allowlist, pairing or open.")
    allow: tuple[PlatformId, ...] = Field(
        (), description='Allow list: platform ids of people and groups; "*" allows anyone.'
    )
    groups: GroupMode = Field(
        "mention",
        description='In groups: "mention" answers what names or replies to the agent, "all" everything, "off" nothing.',
    )

    @field_validator("allow")
    @classmethod
    def _are_ids(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for number, id in enumerate(allow, start=1):
            if id != "*" and not re.fullmatch(f"{cls.PERSON}|{cls.GROUP}", id):
                raise ValueError(f"entry {number} is not an id; {cls.IDS}")
        return allow
