import pytest

from gateway.config.load import parse
from gateway.domain.errors import ConfigError


def test_a_variable_is_taken_from_the_environment_wherever_it_is_named() -> None:
    config = parse(
        '{"channels": {"telegram": {"token": "$env:TOKEN", "allow": ["$env:ME"]}}, "web": {"port": "$env:PORT"}}',
        {"TOKEN": "1:a", "ME": "123", "PORT": "9000"},
    )

    assert config.channels["telegram"] == {"token": "1:a", "allow": ["123"]}
    assert config.web.port == 9000


def test_only_a_whole_text_is_a_reference() -> None:
    assert parse('{"owner": {"name": "use $env:NAME"}}', {}).owner.name == "use $env:NAME"


def test_every_missing_variable_is_told_with_its_key() -> None:
    with pytest.raises(ConfigError) as refused:
        parse(
            '{"owner": {"name": "$env:A"}, "models": {"fallbacks": ["x", "$env:B"]}}',
            {"B": "", "SUPACLAW_CONFIG": "/here/config.json"},
        )

    assert str(refused.value).splitlines() == [
        "config.json: owner.name: the environment variable A is not set; write A=… into /here/.env and start again",
        "config.json: models.fallbacks[1]: the environment variable B is not set; "
        "write B=… into /here/.env and start again",
    ]


def test_a_secret_is_looked_up_by_its_name() -> None:
    config = parse('{"owner": {"name": "$secret:NAME"}}', {}, secrets={"NAME": "Ada"}.__getitem__)

    assert config.owner.name == "Ada"


def test_a_secret_that_was_never_stored_is_told_with_the_way_to_store_it() -> None:
    with pytest.raises(ConfigError) as refused:
        parse('{"owner": {"name": "$secret:NAME"}}', {})

    assert str(refused.value) == (
        "config.json: owner.name: there is no secret NAME; `supaclaw secrets set NAME` stores one"
    )


@pytest.mark.parametrize("section", ['"database": {"url": "$secret:DSN"}', '"web": {"public_url": "$secret:DSN"}'])
def test_what_a_start_needs_first_is_no_secret(section: str) -> None:
    with pytest.raises(ConfigError, match=r"a start needs this before it can read secrets; use \$env:DSN"):
        parse("{" + section + "}", {}, secrets={"DSN": "postgres://h/db"}.__getitem__)


def test_an_imported_key_is_found_where_a_variable_is_named() -> None:
    text = '{"owner": {"name": "$env:NAME"}}'

    assert parse(text, {}, secrets={"NAME": "Ada"}.__getitem__).owner.name == "Ada"
    assert parse(text, {"NAME": "Bob"}, secrets={"NAME": "Ada"}.__getitem__).owner.name == "Bob"
