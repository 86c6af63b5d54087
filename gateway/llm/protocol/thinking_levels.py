"""How much a model is to think, in the words of each provider, from their documentation."""

from gateway.domain.json import Json
from gateway.domain.settings import ThinkingLevel

_SWITCHED = frozenset({"deepseek", "zai", "moonshot"})
"""Providers whose models think or don't: `thinking: {"type": ...}`."""
_TEMPLATED = frozenset({"vllm", "hosted_vllm", "lm_studio", "llamafile"})
"""Servers that pass `enable_thinking` on to the template of a Qwen model."""
_BUDGETS = {"low": 1_024, "medium": 2_048, "high": 4_096}
"""Tokens that litellm lets Claude think for, and that the answer must not lack."""


def thinking_json(prefix: str, name: str, level: ThinkingLevel | None) -> dict[str, Json]:
    """The fields that ask a server of OpenAI's protocol for this level; empty without one."""
    if level is None:
        return {}
    thinks, qwen = level != "off", "qwen" in name.lower() or "qwq" in name.lower()
    if prefix == "openrouter":
        return {"reasoning": {"effort": level} if thinks else {"enabled": False}}
    if prefix in _SWITCHED:
        return {"thinking": {"type": "enabled" if thinks else "disabled"}}
    if prefix == "dashscope":
        return {"enable_thinking": thinks}
    if qwen and prefix in _TEMPLATED:
        return {"chat_template_kwargs": {"enable_thinking": thinks}}
    if qwen and prefix == "groq":
        return {"reasoning_effort": "default" if thinks else "none"}
    if prefix == "mistral":
        return {"reasoning_effort": "high" if thinks else "none"}
    return {"reasoning_effort": level if thinks else "none"}


def thinking_budget(level: ThinkingLevel | None) -> int:
    """Tokens of thinking that an answer may have beside its own limit."""
    return _BUDGETS.get(level or "", 0)


def litellm_thinking(name: str, level: ThinkingLevel | None, limit: int) -> dict[str, Json]:
    """The same for litellm, which translates it for each provider.

    Claude's thinking counts toward the `limit` of its answer, so that is raised, and it takes no sampling parameters.
    """
    if level is None:
        return {}
    if level == "off":
        return {"reasoning_effort": "none"}
    effort: dict[str, Json] = {"reasoning_effort": level}
    if "claude" in name:
        effort |= {"max_tokens": limit + thinking_budget(level), "temperature": None, "top_p": None}
    return effort
