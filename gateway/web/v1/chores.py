"""Titles, tags and follow-up questions that chat programs ask for beside a conversation: answered by rule, no turn."""

import json
import re

from gateway.domain.conversation.model import ToolCall
from gateway.domain.json import Json
from gateway.domain.text.titles import clipped
from gateway.web.v1.request import Asked
from gateway.web.v1.turn import Spoken

TITLE_LENGTH = 40
_OPEN_WEBUI = re.compile(r"### Task:\s*(?P<task>[^\n]+).*<chat_history>", re.DOTALL)
_LIBRECHAT = re.compile(
    r"Provide a concise, 5-word-or-less title for the conversation"
    r"|Please generate a concise title \(max 40 characters\) for a conversation"
    r"|Analyze this conversation and provide:.{0,200}concise title",
    re.DOTALL,
)
_SAID = re.compile(r'^\W*(?:user|human)\W*:\s*"*(.+)', re.IGNORECASE | re.MULTILINE)


def chore(asked: Asked) -> Spoken | None:
    """The answer to a request of Open WebUI or LibreChat that nobody said; None for all others."""
    if any(said.role != "system" for said in asked.earlier):
        return None
    if match := _OPEN_WEBUI.match(asked.text):
        task = match["task"].lower()
        if "tags" in task:
            return Spoken(json.dumps({"tags": ["General"]}))
        if "follow-up" in task:
            return Spoken(json.dumps({"follow_ups": []}))
        if "title" in task:
            return _titled(asked, {"title": _title(asked.text)}, plain='"title"' not in asked.text)
    if _LIBRECHAT.match(asked.text):
        return _titled(asked, {"language": "English", "title": _title(asked.text)}, plain=True)
    return None


def _titled(asked: Asked, fields: dict[str, Json], *, plain: bool) -> Spoken:
    told = json.dumps(fields, ensure_ascii=False)
    if asked.options.tools:
        return Spoken("", calls=(ToolCall("call_title", asked.options.tools[0].name, told),))
    return Spoken(str(fields["title"]) if plain and not asked.options.answer_format else told)


def _title(text: str) -> str:
    """The beginning of what the person said first."""
    found = _SAID.search(text)
    return (clipped(found[1].strip('" '), TITLE_LENGTH) if found else "") or "Chat"
