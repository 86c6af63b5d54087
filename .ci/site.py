"""A hook of mkdocs: links to files outside docs/ lead into the repository, or are words where that is unknown."""

import os
import re
from typing import Any

REPOSITORY = os.environ.get("SUPACLAW_REPOSITORY", "").rstrip("/")
_OUTSIDE = re.compile(r"\[([^]]*)\]\(\.\./([^)]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    linked = _OUTSIDE.sub(rf"[\1]({REPOSITORY}/blob/main/\2)" if REPOSITORY else r"\1", markdown)
    return linked.replace("REPOSITORY", REPOSITORY or "REPOSITORY")
