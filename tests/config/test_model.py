import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pydantic import ValidationError

from gateway.config.model import Config, HeartbeatSettings, Owner, json_schema
from gateway.config.problems import known_keys
from gateway.config.value_types import parse_hours
from gateway.domain.settings import Described


def test_an_empty_object_is_a_whole_configuration() -> None:
    config = Config.model_validate({})

    assert config.web.host == "127.0.0.1"
    assert config.web.port == 8787
    assert config.database.url is None
    assert config.models.primary == "auto"
    assert config.heartbeat.every == timedelta(minutes=30)


def test_the_owners_ids_are_the_channels_that_are_not_null() -> None:
    owner = Owner.model_validate({"name": "Ada", "telegram": "123", "slack": None, "whatsapp": 456})

    assert owner.name == "Ada"
    assert owner.ids == {"telegram": "123", "whatsapp": "456"}


def test_the_owners_zone_is_no_channel() -> None:
    owner = Owner.model_validate({"timezone": "Europe/Berlin", "telegram": "123"})

    assert owner.timezone == "Europe/Berlin"
    assert owner.ids == {"telegram": "123"}


def test_a_zone_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(ValidationError, match=r'"Berlin" is not an IANA time zone; did you mean Europe/Berlin\?'):
        Owner.model_validate({"timezone": "Berlin"})


def test_values_already_parsed_are_taken_as_they_are() -> None:
    hours = parse_hours("08:00-22:00")

    heartbeat = HeartbeatSettings(every=timedelta(hours=1), active_hours=hours)

    assert heartbeat.every == timedelta(hours=1)
    assert heartbeat.model_dump(mode="json", exclude_unset=True) == {"every": "1h", "active_hours": "08:00-22:00"}


def test_nothing_can_be_changed_afterwards() -> None:
    config = Config()

    with pytest.raises(ValidationError):
        config.web.port = 1


def test_no_secret_is_in_its_repr() -> None:
    config = Config.model_validate(
        {
            "models": {"providers": {"openai": {"api_key": "hush-model"}}},
            "channels": {"telegram": {"token": "hush-channel"}},
            "tools": {"mcp": {"x": {"env": {"KEY": "hush-mcp"}}}},
            "database": {"url": "postgres://u:hush-db@h/db"},
        }
    )

    assert "hush" not in repr(config)


def test_every_key_is_described() -> None:
    descriptions = dict(described(Config))

    assert [path for path in known_keys(Config) if not descriptions[path]] == []


def described(model: type[Described], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str | None]]:
    about = model.descriptions()
    for name, field in model.model_fields.items():
        yield (*path, name), about.get(name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Described):
            yield from described(field.annotation, (*path, name))


def test_every_key_is_in_it() -> None:
    text = json.dumps(json_schema())

    assert all(f'"{path[-1]}"' in text for path in known_keys(Config))


def test_unknown_keys_are_marked_but_the_schema_itself_may_be_named() -> None:
    described = json_schema()

    assert described["additionalProperties"] is False
    assert isinstance(described["properties"], dict)
    assert "$schema" in described["properties"]


def test_a_number_may_also_be_a_reference() -> None:
    definitions = json_schema()["$defs"]
    assert isinstance(definitions, dict)
    web = definitions["WebSettings"]
    assert isinstance(web, dict)
    assert isinstance(web["properties"], dict)

    port = web["properties"]["port"]

    assert isinstance(port, dict)
    assert port["default"] == 8787
    assert port["anyOf"] == [
        {"maximum": 65535, "minimum": 0, "type": "integer"},
        {"type": "string", "pattern": "^\\$(env|secret):.+"},
    ]
