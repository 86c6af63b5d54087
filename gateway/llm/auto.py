"""`models.primary: "auto"`: the first provider with a key, else a local Ollama, else the built-in guide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.domain.settings import ProviderSettings
from gateway.llm.catalog import VENDORS, Vendor
from gateway.llm.endpoint import endpoint_of

GUIDE = "guide/built-in"


@dataclass(frozen=True, slots=True)
class Choice:
    """The model chosen, and the reason, worded for the owner."""

    model: str
    reason: str


def choose(
    environ: Mapping[str, str], providers: Mapping[str, ProviderSettings], ollama_models: Sequence[str]
) -> Choice:
    """Choose by key, in catalogue order, then from `ollama_models`, the models a local Ollama offers."""
    for entry in VENDORS:
        if entry.model and (where := _key_place(entry, environ, providers)):
            return Choice(entry.model, f"auto: a key for {entry.title} is in {where}")
    chat_models = [name for name in ollama_models if "embed" not in name]
    if chat_models:
        return Choice(f"ollama/{chat_models[0]}", "auto: no provider key was found, but a local Ollama has this model")
    return Choice(GUIDE, "auto: no provider key was found and no local Ollama answers")


def _key_place(entry: Vendor, environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> str | None:
    if endpoint_of(entry.prefix, providers, {}).key:
        return f"config.json (models.providers.{entry.prefix}.api_key)"
    return next((f"the environment ({name})" for name in entry.keys if environ.get(name)), None)
