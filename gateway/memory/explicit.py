"""Explicit requests to remember: the only ones that are kept without a model's judgement."""

import re

_ASKED = re.compile(
    r"""(?:please\s+|bitte\s+)?
        (?:remember(?:\s+this|\s+that)?|don['’]t\s+forget(?:\s+that)?|note\s+to\s+self|keep\s+in\s+mind(?:\s+that)?
          |merk(?:e)?\s+dir(?:\s+bitte)?|vergiss\s+nicht|denk\s+(?:bitte\s+)?daran
          |recuerda(?:\s+que)?|no\s+olvides(?:\s+que)?|hatırla|unutma)(?!\w)
        \s*[:,\-–—、：]?\s*(?:dass\s+)?""",
    re.VERBOSE | re.IGNORECASE,
)
_FEWEST, _MOST = 3, 4_000


def asked_to_remember(text: str) -> str:
    """What a message that begins with "remember that …" and the like asks to keep; "" for any other."""
    found = _ASKED.match(text.strip())
    if found is None or found.end() == 0:
        return ""
    rest = text.strip()[found.end() :].strip()
    return rest if _FEWEST <= len(rest) <= _MOST and not rest.endswith("?") else ""
