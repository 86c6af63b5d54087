"""What keeps secrets out of logs and of everything else that is printed."""

import re
from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, SecretStr

from gateway.domain.credentials import SHAPES

_HIDDEN = "[hidden]"
_SHORTEST = 6
"""Less would hide ordinary words."""


class SecretMask:
    """Takes secrets out of texts: the values it was told, and what looks like a key, a token or a password."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._told: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        """Hide `value` from now on; fewer than 6 characters are not taken."""
        if len(value) >= _SHORTEST:
            self._values.add(value)
            longest_first = sorted(self._values, key=len, reverse=True)
            self._told = re.compile("|".join(map(re.escape, longest_first)))

    def learn(self, settings: object) -> None:
        """Hide every secret in these settings."""
        match settings:
            case SecretStr():
                self.add(settings.get_secret_value())
            case BaseModel():
                for _, value in settings:
                    self.learn(value)
            case Mapping():
                for value in settings.values():
                    self.learn(value)

    def text(self, text: str) -> str:
        """`text` without secrets."""
        if self._told is not None:
            text = self._told.sub(_HIDDEN, text)
        return SHAPES.sub(lambda match: "".join(filter(None, match.groups())) + _HIDDEN, text)

    def value(self, value: object) -> object:
        """`value` as JSON knows it, every text in it without secrets; what JSON does not know is written as text."""
        match value:
            case str():
                return self.text(value)
            case None | bool() | int() | float():
                return value
            case datetime():
                return value.isoformat()
            case Mapping():
                return {self.text(str(key)): self.value(item) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.value(item) for item in value]
            case _:
                return self.text(str(value))
