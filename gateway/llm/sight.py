"""Pictures in prompts: a model without eyes is shown the text alone."""

import re
from dataclasses import replace

from gateway.domain.model import Prompt, UserMessage
from gateway.llm.errors import ModelError

_BLIND = re.compile(r"\bimages?\b|image_url|vision|multi-?modal|content must be a string", re.IGNORECASE)


def has_pictures(prompt: Prompt) -> bool:
    """Whether there is anything to see in it."""
    return any(isinstance(message, UserMessage) and message.images for message in prompt.messages)


def without_pictures(prompt: Prompt) -> Prompt:
    """The same in words."""
    told = (replace(m, images=()) if isinstance(m, UserMessage) else m for m in prompt.messages)
    return Prompt(tuple(told), prompt.tools)


def refused_pictures(error: ModelError) -> bool:
    """Whether it was the pictures that were refused: servers have many codes for that, and each its own words."""
    return _BLIND.search(error.message) is not None
