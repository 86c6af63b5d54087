"""`models.primary: "auto"`: the first provider with a key, else a server on this machine, else the built-in guide."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.domain.settings import ProviderSettings
from gateway.llm.vendors import VENDORS, Vendor, default_model, endpoint_of, is_enabled, split_model, vendor

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


def connected_transcribers(environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> Iterator[str]:
    """Yield the model for recordings of each provider that has a key and is asked at its own address."""
    for entry in VENDORS:
        model, settings = entry.transcriber, providers.get(entry.prefix, ProviderSettings())
        if model and settings.enabled and settings.base_url is None and _key_place(entry, environ, providers):
            yield model


def choose_model(
    environ: Mapping[str, str],
    providers: Mapping[str, ProviderSettings],
    local: Sequence[str],
    *,
    known_ollama: bool = False,
) -> ModelChoice:
    """Choose the first connected one, else from `local`, the models that servers on this machine offer, best first.

    Anybody on this machine can listen on their ports, so a server that isn't configured is only offered, but for an
    Ollama that has answered before: `auto` took any, once.
    """
    if (first := next(connected_models(environ, providers), None)) is not None:
        return first
    for model in local:
        prefix, _ = split_model(model)
        is_known = known_ollama and prefix == "ollama"
        if is_known or prefix in providers or endpoint_of(prefix, providers, environ).base_url:
            reason = f"auto: no provider key was found, but {vendor(prefix).title} on this machine has this model"
            return ModelChoice(model, reason)
    if local:
        title = vendor(split_model(local[0])[0]).title
        waits = f"{title} on this machine offers {local[0]}; say yes to it in Setup on the page or `supaclaw init`"
        return ModelChoice(GUIDE, f"auto: no provider key was found; {waits}", local[0])
    return ModelChoice(GUIDE, "auto: no provider key was found and no model server on this machine answers")


def _key_place(entry: Vendor, environ: Mapping[str, str], providers: Mapping[str, ProviderSettings]) -> str | None:
    if endpoint_of(entry.prefix, providers, {}).key:
        return f"config.json (models.providers.{entry.prefix}.api_key)"
    return next((f"the environment ({name})" for name in entry.keys if environ.get(name)), None)
