from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gateway.config.problems import explain


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    depth: int = 0


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    needed: str
    maybe: Inner | None = None
    pair: Annotated[list[Inner], Field(max_length=2)] = []
    switch: bool = False
    mode: Literal["a"] = "a"
    url: Annotated[str, Field(pattern="^https?://")] = "http://"


def told(raw: object) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Outer.model_validate(raw)
    return explain(refused.value, Outer, ("at",))


def test_what_is_missing_is_told_with_the_prefix() -> None:
    assert told({}) == ["at.needed: is required"]


def test_keys_are_suggested_inside_optional_sections_and_lists() -> None:
    assert told({"needed": "", "maybe": {"dept": 1}, "pair": [{"dep": 1}]}) == [
        "at.maybe.dept: unknown key; did you mean at.maybe.depth?",
        "at.pair[0].dep: unknown key; did you mean at.pair[0].depth?",
    ]


def test_a_kind_of_error_we_have_no_words_for_keeps_its_own() -> None:
    assert told({"needed": "", "pair": [{}, {}, {}]}) == [
        "at.pair: List should have at most 2 items after validation, not 3"
    ]


def test_a_text_of_the_wrong_shape_is_told_the_shape() -> None:
    assert told({"needed": "", "mode": 1, "url": "ftp://x"}) == [
        "at.mode: must be 'a'",
        "at.url: must look like ^https?://",
    ]


def test_a_switch_wants_true_or_false() -> None:
    assert told({"needed": "", "switch": "perhaps"}) == ["at.switch: must be true or false"]


def test_a_validators_own_words_are_kept_even_with_braces() -> None:
    def refuse(_: str) -> str:
        raise ValueError("not {this}")

    class Model(BaseModel):
        text: Annotated[str, AfterValidator(refuse)]

    with pytest.raises(ValidationError) as refused:
        Model.model_validate({"text": "x"})

    assert explain(refused.value, Model) == ["text: not {this}"]
