"""What keeps secrets out of logs and of everything else that is printed."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, SecretStr

from gateway.domain.people.credentials import SHAPES
from gateway.secrets.leaks import Leaks

_HIDDEN = "[hidden]"
_SHORTEST = 6
"""Less would hide ordinary words."""


class SecretMask:
    """Takes secrets out of texts: the values it was told, and what looks like a key, a token or a password.

    `leaks` finds what is certainly secret, in any text: the stored secrets and those of the settings. Log lines lack
    more: variables that are named like a secret, short values, shapes.
    """

    def __init__(self) -> None:
        self.leaks = Leaks()
        self._told = Leaks(_SHORTEST)
        self._settings: dict[str, str] = {}
        self._stored: Mapping[str, str] = {}
        self._others: dict[str, str] = {}

    def add(self, value: str) -> None:
        """Hide `value` in logs from now on; fewer than 6 characters are not taken."""
        self._others[value] = _HIDDEN
        self._tell()

    def learn(self, settings: object) -> None:
        """Hide every secret in these settings."""
        match settings:
            case SecretStr():
                self._settings[settings.get_secret_value()] = _HIDDEN
                self._tell()
            case BaseModel():
                for _, value in settings:
                    self.learn(value)
            case Mapping():
                for value in settings.values():
                    self.learn(value)

    def stored(self, values: Mapping[str, str]) -> None:
        """Replace these values, and no earlier ones, each by the text that stands for it."""
        self._stored = values
        self._tell()

    def text(self, text: str) -> str:
        """`text` without secrets."""
        text, _ = self._told.clean(text)
        return SHAPES.sub(lambda match: "".join(filter(None, match.groups())) + _HIDDEN, text)

    def _tell(self) -> None:
        self.leaks.learn(self._settings | dict(self._stored))
        self._told.learn(self._others | self._settings | dict(self._stored))

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
