"""Images in prompts: models without vision get the text only."""

import re
from dataclasses import replace

from gateway.domain.conversation.model import Prompt, UserMessage
from gateway.llm.errors import ModelError

_NO_IMAGES = re.compile(r"\bimages?\b|image_url|vision|multi-?modal|content must be a string", re.IGNORECASE)


def has_images(prompt: Prompt) -> bool:
    """Whether the prompt contains images."""
    return any(isinstance(message, UserMessage) and message.images for message in prompt.messages)


def without_images(prompt: Prompt) -> Prompt:
    """The prompt with its text only."""
    messages = (replace(m, images=()) if isinstance(m, UserMessage) else m for m in prompt.messages)
    return replace(prompt, messages=tuple(messages))


def refused_images(error: ModelError) -> bool:
    """Whether the images caused the refusal; servers share no code for it, so the message is searched."""
    return _NO_IMAGES.search(error.message) is not None
