import pytest

from gateway.config.load import parse
from gateway.config.public_url import origin_of
from gateway.domain.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://claw.example.org", "https://claw.example.org"),
        (" https://Claw.Example.org/ ", "https://claw.example.org"),
        ("https://claw.example.org:443", "https://claw.example.org"),
        ("https://claw.example.org:8443", "https://claw.example.org:8443"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_is_kept_as_browsers_write_an_origin(text: str, origin: str) -> None:
    assert origin_of(text) == origin


@pytest.mark.parametrize("text", ["http://claw.example.org", "ftp://claw.example.org", "http://localhost.example.org"])
def test_needs_https_but_on_this_machine(text: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        origin_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://claw.example.org/page",
        "https://claw.example.org/?a=1",
        "https://claw.example.org/#a",
        "https://ada@claw.example.org",
        "https://ada:secret@claw.example.org",
    ],
)
def test_is_a_host_and_perhaps_a_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"nothing before or after: https://claw\.example\.org$"):
        origin_of(text)


@pytest.mark.parametrize(
    "text", ["", "claw.example.org", "https://", "https://claw example", "https://*.example.org:x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be an address|must begin with"):
        origin_of(text)


def test_the_environment_beats_the_file() -> None:
    file = '{"web": {"public_url": "https://a.example"}}'

    assert parse(file, {}).web.public_url == "https://a.example"
    assert parse(file, {"SUPACLAW_PUBLIC_URL": "https://b.example/"}).web.public_url == "https://b.example"


def test_a_wrong_one_is_named_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"web\.public_url: must begin with https"):
        parse("{}", {"SUPACLAW_PUBLIC_URL": "http://claw.example.org"})
