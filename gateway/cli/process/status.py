"""`supaclaw status`."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from gateway.cli.console import echo
from gateway.cli.output import AsJson, Timeout, print_json
from gateway.cli.running import ask
from gateway.domain.text.texts import json_text, printable


def status(as_json: AsJson = False, timeout: Timeout = 10) -> None:
    """Show the state of the running gateway."""
    told = ask("/api/status", timeout=timeout)
    if as_json:
        print_json(told)
    else:
        echo("\n".join(_lines(told)))


def _lines(value: Mapping[str, JsonValue], indent: str = "") -> Iterator[str]:
    for key, item in value.items():
        match item:
            case None | "" | {} | [] if not item:
                continue
            case dict():
                yield f"{indent}{key}:"
                yield from _lines(item, f"{indent}  ")
            case list():
                yield f"{indent}{key}: {', '.join(map(_word, item))}"
            case _:
                yield f"{indent}{key}: {_word(item)}"


def _word(value: JsonValue) -> str:
    return printable(value if isinstance(value, str) else json_text(value), keep="")
