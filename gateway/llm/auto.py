"""`models.primary: "auto"`: the first provider with a key, else a local Ollama, else the built-in guide."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.domain.settings import ProviderSettings
from gateway.llm.vendors import VENDORS, Vendor, default_model, endpoint_of, is_enabled

GUIDE = "guide/built-in"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model chosen, and the reason, worded for the owner; `offered` is one that waits for the owner's yes."""

    model: str
    reason: str
    offered: str = ""


def connected_models(environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> Iterator[ModelChoice]:
    """Yield the default model of each provider that has a key, in catalogue order, or an address of its own."""
    for entry in VENDORS:
        model = default_model(entry.prefix, providers)
        if model and is_enabled(model, providers) and (where := _key_place(entry, environ, providers)):
            yield ModelChoice(model, f"auto: a key for {entry.title} is in {where}")
    for prefix, settings in providers.items():
        model = default_model(prefix, providers)
        if model and settings.enabled and settings.default_model and settings.base_url:
            yield ModelChoice(model, f"auto: config.json has models.providers.{prefix}.default_model and its base_url")


def choose_model(
    environ: Mapping[str, str],
    providers: Mapping[str, ProviderSettings],
    ollama_models: Sequence[str],
    *,
    known: bool,
) -> ModelChoice:
    """Choose the first connected one, else from `ollama_models`, the models that a local Ollama offers, best first.

    Anybody on this machine can listen on its port, so one that isn't configured, and not `known` from earlier answers,
    is only offered.
    """
    if (first := next(connected_models(environ, providers), None)) is not None:
        return first
    if ollama_models:
        model = f"ollama/{ollama_models[0]}"
        if known or "ollama" in providers or environ.get("OLLAMA_HOST"):
            return ModelChoice(model, "auto: no provider key was found, but a local Ollama has this model")
        waits = f"an Ollama on this machine offers {model}; say yes to it in Setup on the page or `supaclaw init`"
        return ModelChoice(GUIDE, f"auto: no provider key was found; {waits}", model)
    return ModelChoice(GUIDE, "auto: no provider key was found and no local Ollama answers")


def _key_place(entry: Vendor, environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> str | None:
    if endpoint_of(entry.prefix, providers, {}).key:
        return f"config.json (models.providers.{entry.prefix}.api_key)"
    return next((f"the environment ({name})" for name in entry.keys if environ.get(name)), None)
