"""Which file of `providers/` serves a model."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

from gateway.domain.settings import ProviderSettings
from gateway.llm.catalog import split
from gateway.llm.endpoint import Endpoint, endpoint_of
from gateway.llm.provider import Provider

_PACKAGE = "gateway.llm.providers"
_NEVER_LITELLM = frozenset({"guide", "scripted"})

Engine = Literal["auto", "litellm"]


class Providers:
    """The providers of one configuration, one per prefix, built on first use."""

    def __init__(
        self, settings: Mapping[str, ProviderSettings], environ: Mapping[str, str], engine: Engine = "auto"
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._engine = engine
        self._built: dict[str, Provider] = {}

    def of(self, model: str) -> Provider:
        """The provider of a model."""
        prefix, _ = split(model)
        if prefix not in self._built:
            endpoint = endpoint_of(prefix, self._settings, self._environ)
            module = import_module(f"{_PACKAGE}.{module_of(endpoint, self._engine)}")
            build: Callable[[Endpoint], Provider] = module.build
            self._built[prefix] = build(endpoint)
        return self._built[prefix]

    def secrets(self, model: str) -> tuple[str, ...]:
        """Secrets to mask in texts about this model."""
        key = endpoint_of(split(model)[0], self._settings, self._environ).key
        return (key,) if key else ()

    async def close(self) -> None:
        """Close every provider that was built."""
        for provider in self._built.values():
            await provider.close()


def module_of(endpoint: Endpoint, engine: Engine = "auto") -> str:
    """The module to use: one named like the prefix, else `openai` if the endpoint speaks it, else `litellm`."""
    prefix = endpoint.vendor.prefix
    if engine == "litellm" and prefix not in _NEVER_LITELLM:
        return "litellm"
    if prefix.isidentifier() and find_spec(f"{_PACKAGE}.{prefix}"):
        return prefix
    return "openai" if endpoint.speaks_openai else "litellm"
