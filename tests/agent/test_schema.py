from typing import Literal

from pydantic import BaseModel, Field

from gateway.agent.schema import parameters_of


class Part(BaseModel):
    """Said for people."""

    title: str = Field(description="A field that is called title")


class Arguments(BaseModel):
    """Said for people."""

    parts: list[Part] = Field(description="Some parts")
    first: Part = Field(description="The first part")
    unit: Literal["c", "f"] | None = None
    mixed: int | str = 3
    labels: dict[str, Part] = {}


def test_a_schema_holds_only_what_a_model_needs() -> None:
    part = {
        "properties": {"title": {"description": "A field that is called title", "type": "string"}},
        "required": ["title"],
        "type": "object",
    }
    assert parameters_of(Arguments) == {
        "type": "object",
        "properties": {
            "parts": {"type": "array", "items": part, "description": "Some parts"},
            "first": part,
            "unit": {"enum": ["c", "f"], "type": "string"},
            "mixed": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 3},
            "labels": {"type": "object", "additionalProperties": part, "default": {}},
        },
        "required": ["parts", "first"],
    }
