"""Known providers: their keys, addresses and the model `auto` picks; litellm knows the rest."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.domain.settings import ProviderSettings


@dataclass(frozen=True, slots=True)
class Vendor:
    """One provider. `base_url` is set if it speaks the OpenAI protocol; `model` is what `auto` picks."""

    prefix: str
    title: str
    keys: tuple[str, ...] = ()
    keys_page: str = ""
    base_url: str | None = None
    model: str | None = None
    limit_field: str = "max_tokens"
    short_call_ids: bool = False
    """Tool call ids must be exactly nine letters or digits."""
    host_variable: str = ""
    """Holds a bare `host:port` instead of an address."""
    cheap: str | None = None
    """What is asked for summaries, where nothing else is said."""
    key_shape: str = ""
    """What its keys look like; an old style that others share matches several vendors."""


VENDORS = (
    Vendor(
        "openai",
        "OpenAI",
        ("OPENAI_API_KEY",),
        "https://platform.openai.com/api-keys",
        "https://api.openai.com/v1",
        "openai/gpt-5.6-terra",
        limit_field="max_completion_tokens",
        cheap="openai/gpt-5.6-luna",
        key_shape=r"sk-(?!ant-|or-|admin-)[\w-]{20,}",
    ),
    Vendor(
        "anthropic",
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        "https://platform.claude.com/settings/keys",
        model="anthropic/claude-sonnet-5-5",
        cheap="anthropic/claude-haiku-5-5",
        key_shape=r"sk-ant-(?!admin)[\w-]{20,}",
    ),
    Vendor(
        "gemini",
        "Google Gemini",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "https://aistudio.google.com/apikey",
        model="gemini/gemini-3.8-flash",
        cheap="gemini/gemini-3.8-flash",
        key_shape=r"AIza[\w-]{30,}|AQ\.[\w-]{30,}",
    ),
    Vendor(
        "openrouter",
        "OpenRouter",
        ("OPENROUTER_API_KEY",),
        "https://openrouter.ai/settings/keys",
        "https://openrouter.ai/api/v1",
        "openrouter/openai/gpt-5.6-terra",
        cheap="openrouter/openai/gpt-5.6-luna",
        key_shape=r"sk-or-[\w-]{20,}",
    ),
    Vendor(
        "groq",
        "Groq",
        ("GROQ_API_KEY",),
        "https://console.groq.com/keys",
        "https://api.groq.com/openai/v1",
        "groq/openai/gpt-oss-120b",
        cheap="groq/openai/gpt-oss-20b",
        key_shape=r"gsk_\w{20,}",
    ),
    Vendor(
        "deepseek",
        "DeepSeek",
        ("DEEPSEEK_API_KEY",),
        "https://platform.deepseek.com/api_keys",
        "https://api.deepseek.com/v1",
        "deepseek/deepseek-v4-pro",
        cheap="deepseek/deepseek-v4-flash",
        key_shape=r"sk-[0-9a-f]{32}",
    ),
    Vendor(
        "mistral",
        "Mistral",
        ("MISTRAL_API_KEY",),
        "https://console.mistral.ai/api-keys",
        "https://api.mistral.ai/v1",
        "mistral/mistral-large-latest",
        short_call_ids=True,
        cheap="mistral/mistral-small-latest",
        key_shape=r"\w{32}",
    ),
    Vendor(
        "xai",
        "xAI",
        ("XAI_API_KEY",),
        "https://console.x.ai",
        "https://api.x.ai/v1",
        "xai/grok-4.7",
        key_shape=r"xai-\w{20,}",
    ),
    Vendor("ollama", "Ollama", base_url="http://127.0.0.1:11434", host_variable="OLLAMA_HOST"),
    Vendor("ollama_chat", "Ollama", base_url="http://127.0.0.1:11434", host_variable="OLLAMA_HOST"),
    Vendor("vllm", "vLLM", base_url="http://127.0.0.1:8000"),
    Vendor("hosted_vllm", "vLLM", base_url="http://127.0.0.1:8000"),
    Vendor("lm_studio", "LM Studio", base_url="http://127.0.0.1:1234"),
)
"""In the order in which `auto` looks for keys."""

# fmt: off
NATIVE = frozenset({
    "anthropic", "anthropic_text", "azure", "azure_ai", "bedrock", "bedrock_converse", "bedrock_mantle",
    "chatgpt", "clarifai", "cloudflare", "cohere", "cohere_chat", "databricks", "gemini", "github_copilot",
    "huggingface", "nlp_cloud", "oci", "palm", "petals", "predibase", "replicate", "sagemaker",
    "sagemaker_chat", "snowflake", "triton", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text",
})
# fmt: on
"""Prefixes with their own protocol; setting a `base_url` does not make them speak OpenAI's."""


def split(model: str) -> tuple[str, str]:
    """Split a model into prefix and name, by litellm's convention; a bare name means OpenAI."""
    prefix, slash, name = model.partition("/")
    return (prefix, name) if slash else ("openai", model)


def cheap_beside(primary: str, providers: Mapping[str, ProviderSettings]) -> str | None:
    """The cheap model of the same provider, by the same key; None for one without, or with an address of its own."""
    prefix, _ = split(primary)
    settings = providers.get(prefix)
    return None if settings is not None and settings.base_url is not None else vendor(prefix).cheap


def vendor(prefix: str) -> Vendor:
    """The entry for a prefix; an empty entry if it is unknown."""
    return next((known for known in VENDORS if known.prefix == prefix), Vendor(prefix, prefix))
