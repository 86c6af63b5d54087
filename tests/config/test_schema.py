import json

from gateway.config.model import Config
from gateway.config.problems import known_keys
from gateway.config.schema import schema


def test_every_key_is_in_it() -> None:
    text = json.dumps(schema())

    assert all(f'"{path[-1]}"' in text for path in known_keys(Config))


def test_unknown_keys_are_marked_but_the_schema_itself_may_be_named() -> None:
    described = schema()

    assert described["additionalProperties"] is False
    assert isinstance(described["properties"], dict)
    assert "$schema" in described["properties"]


def test_a_number_may_also_be_a_reference() -> None:
    definitions = schema()["$defs"]
    assert isinstance(definitions, dict)
    web = definitions["Web"]
    assert isinstance(web, dict)
    assert isinstance(web["properties"], dict)

    port = web["properties"]["port"]

    assert isinstance(port, dict)
    assert port["default"] == 8787
    assert port["anyOf"] == [
        {"maximum": 65535, "minimum": 0, "type": "integer"},
        {"type": "string", "pattern": "^\\$(env|secret):.+"},
    ]
