"""A provider's address and key: from config.json, else from the usual environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from gateway.domain.settings import ProviderSettings
from gateway.llm.catalog import NATIVE, Vendor, vendor


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider as configured; `base_url` is None for its public address."""

    vendor: Vendor
    api_key: SecretStr | None = None
    base_url: str | None = None

    @property
    def key(self) -> str | None:
        """The plain key; only for requests."""
        return self.api_key.get_secret_value() if self.api_key else None

    @property
    def address(self) -> str:
        """Where requests go; empty if only litellm knows."""
        return self.base_url or self.vendor.base_url or ""

    @property
    def speaks_openai(self) -> bool:
        """Whether it speaks the OpenAI protocol."""
        return self.vendor.prefix not in NATIVE and bool(self.address)

    @property
    def lacks_key(self) -> bool:
        """Whether the public address needs a key and none is set."""
        return bool(self.vendor.keys) and self.api_key is None and self.base_url is None


def endpoint_of(prefix: str, providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> Endpoint:
    """The endpoint for the models of one prefix."""
    entry = vendor(prefix)
    settings = providers.get(prefix, ProviderSettings())
    return Endpoint(entry, _key(entry, settings, environ), settings.base_url or _base_url(entry, environ))


def _key(entry: Vendor, settings: ProviderSettings, environ: Mapping[str, str]) -> SecretStr | None:
    if settings.api_key and settings.api_key.get_secret_value():
        return settings.api_key
    found = next((environ[name] for name in entry.keys if environ.get(name)), None)
    return SecretStr(found) if found else None


def _base_url(entry: Vendor, environ: Mapping[str, str]) -> str | None:
    if host := environ.get(entry.host_variable):
        return host_url(host)
    prefix = entry.prefix.upper()
    return environ.get(f"{prefix}_BASE_URL") or environ.get(f"{prefix}_API_BASE") or None


def host_url(host: str) -> str:
    """The URL for an `OLLAMA_HOST` value, in any form that Ollama accepts."""
    scheme, _, rest = host.strip().rpartition("://")
    name, _, port = rest.rstrip("/").partition(":")
    name = "127.0.0.1" if name in {"", "0.0.0.0"} else name
    return f"{scheme or 'http'}://{name}:{port or 11434}"
