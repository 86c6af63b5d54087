import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.domain.urls import HttpUrl

ADDRESS = TypeAdapter[str](HttpUrl)


@pytest.mark.parametrize(
    "text", ["http://h", "https://api.example.com/v1", "http://127.0.0.1:11434/", "http://[::1]:80/v1?a=b"]
)
def test_an_address_is_kept_as_it_was_written(text: str) -> None:
    assert ADDRESS.validate_python(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:11434",
        "http://",
        "http:///v1",
        "ftp://h",
        "http://[::1",
        "http://h:99999",
        "http://h:x",
        "http://a b",
    ],
)
def test_what_cannot_be_reached_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValidationError, match='must be an address such as "https://'):
        ADDRESS.validate_python(text)
