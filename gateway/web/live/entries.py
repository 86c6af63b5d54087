"""The entries of a conversation as HTML, one row of the transcript each; attachments, and cards of open questions."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, assert_never

from markupsafe import Markup

from gateway.agent.limits import dollars
from gateway.agent.tool_sources import tool_title
from gateway.agent.work.approvals import why_asked
from gateway.domain.conversation.diff import legible
from gateway.domain.conversation.tools import Wording
from gateway.domain.conversation.transcript import Attached
from gateway.domain.ids import ReviewId
from gateway.domain.json import Json, json_or_text
from gateway.domain.principals import Label
from gateway.domain.work.todo_lists import TODO
from gateway.flow.live import ModelAwaited
from gateway.store.people.accounts import AccountClaim
from gateway.store.people.pairings import PairingRow
from gateway.store.transcript.messages import DELETED, REVISED, MessageRow
from gateway.store.trust.reviews import ReviewRow
from gateway.web.markup.markdown import Markdown
from gateway.web.pages import Pages, plain

_ASKED = re.compile(r"^\*\*(A\d+): |/(?:pairing approve|link join) ([A-Z0-9]{8})\b", re.MULTILINE)

Question: TypeAlias = ReviewRow | PairingRow | AccountClaim


def names_in(notice: str) -> tuple[str, ...]:
    """The questions that a notice of the gateway asks: approvals by `flow/approvals`, requests by their codes."""
    return tuple(found[1] or found[2] for found in _ASKED.finditer(notice))


def name_of(question: Question) -> str:
    """The name by which a notice asks it."""
    return question.name if isinstance(question, ReviewRow) else question.code


def question_cards(pages: Pages, rows: Sequence[Question], channels: Mapping[ReviewId, str]) -> dict[str, str]:
    """Cards with the forms that answer questions, by their names; `channels`: where another chat asked."""
    return {name_of(row): _question_card(pages, row, channels) for row in rows}


def _question_card(pages: Pages, row: Question, channels: Mapping[ReviewId, str]) -> str:
    if isinstance(row, ReviewRow):
        words = legible(row.preview), why_asked(row), asked_in(row, channels)
        return pages.part("question", row.name, row, *words)
    return pages.part("asks" if isinstance(row, PairingRow) else "joins", row.code, row)


def asked_in(row: ReviewRow, channels: Mapping[ReviewId, str]) -> str:
    """Where a question comes from, in words."""
    if row.id in channels:
        return f"asked by the agent in a {channels[row.id]} chat,"
    return "asked by an automated run," if row.task_id is not None and row.address_id is None else "asked"


def attachment_json(file: Attached) -> dict[str, Json]:
    """The file as an entry of `files` in JSON."""
    names = ("state", "name", "mime", "size", "path", "pages", "description", "problem")
    return {"id": str(file.id) if file.id else None, **{name: getattr(file, name) for name in names}}


_SHOWN_ARGUMENT = 120
_ARGUMENT = re.compile(r"\{(\w+)\}")
_TROUBLES = {
    "rate_limit": "is busy",
    "overloaded": "is busy",
    "network": "can’t be reached",
    "silence": "doesn’t answer",
}


@dataclass(frozen=True, slots=True)
class ToolCard:
    """A tool call as shown, in `words`; `remark` describes its state."""

    id: str
    name: str
    words: str
    arguments: str
    result: str | None
    state: str
    remark: str


@dataclass(frozen=True, slots=True)
class Entries:
    """Draws entries; `wordings` put the calls of tools into words. Buttons are shown only if it `acts`."""

    pages: Pages
    markdown: Markdown
    wordings: Callable[[], Mapping[str, Wording]] = dict
    acts: bool = False

    def draw(self, row: MessageRow, other: MessageRow | None, running: str, questions: Sequence[str] = ()) -> Markup:
        """Draw a row; `other` belongs to it: the result of a call, or the last message that it answers.

        `running` says how far a call is. `questions` are the cards of those that a notice asks and that are open.
        """
        part, id = self.pages.part, id_of(row)
        match row.kind:
            case "user":
                return part("user", id, row, _note(row), _reads(row), self.acts and _own(row))
            case "assistant":
                retry_of = other.id if self.acts and other is not None and _own(other) else None
                return part("assistant", id, row, self.markdown.html(_words(row)), quiet(row), retry_of)
            case "notice" if other is not None:
                again = other.id if _own(other) and (other.attached or other.label is Label.OWNER) else None
                return part("failure", id, row, self.markdown.html(row.text), again)
            case "notice" if questions and self.acts:
                return part("asking", id, [Markup(card) for card in questions])
            case "notice" if names := names_in(row.text):
                return part("asked", id, names, self.markdown.html(row.text))
            case "notice":
                return part("notice", id, row)
            case "summary":
                return part("summary", id, self.markdown.html(row.text))
            case "tool_intent" | "tool_result":
                return part("tool", _card(row, other, self.wordings().get(row.tool or ""), running=running))
            case _:
                assert_never(row.kind)

    def awaited(self, event: ModelAwaited) -> Markup:
        """The model that a turn waits for, and why."""
        return self.pages.part("awaited", event.model, _TROUBLES.get(event.error, "failed"), round(event.seconds))


def id_of(row: MessageRow) -> str:
    """The id of its element."""
    return f"m{row.id}"


def quiet(row: MessageRow) -> str:
    """Models, tokens and costs of an answer; empty if they are not known."""
    if row.usage is None:
        return ""
    tokens = row.usage.input_tokens + row.usage.output_tokens
    models = [model.rpartition("/")[2] for model in row.models]
    cost = [dollars(row.usage.cost_usd)] if row.usage.cost_usd else []
    return " · ".join([*models, f"{tokens:,} tokens", *cost])


def worded(wording: Wording, arguments: str, *, done: bool) -> str:
    """A call in words; cut off before a missing argument."""
    values = parsed if isinstance(parsed := json_or_text(arguments), dict) else {}
    text = wording.done if done else wording.doing
    for name in _ARGUMENT.findall(text):
        value = values.get(name)
        if not isinstance(value, str | int):
            return text[: text.index(f"{{{name}}}")].rstrip(" :“")
        shown = _host(str(value)) if name == "url" else str(value)
        text = text.replace(f"{{{name}}}", plain(shown, _SHOWN_ARGUMENT))
    return text


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0] or url


def running_todo_list(shown: Sequence[tuple[MessageRow, MessageRow | None]]) -> list[tuple[bool, str]]:
    """The to-do list of the running turn: whether each step is done, its text. `shown`: rows with their results."""
    for row, result in reversed(shown):
        if row.kind == "assistant" and row.final:
            break
        if row.tool == TODO and result is not None:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                lines: list[str] = json.loads(result.text)["todo"]
                return [("[x]" in line.split("] ", 1)[0] + "]", line.split("] ", 1)[-1]) for line in lines]
    return []


def _card(row: MessageRow, result: MessageRow | None, wording: Wording | None, *, running: str) -> ToolCard:
    words = worded(wording, row.text, done=result is not None) if wording else ""
    card = partial(ToolCard, id_of(row), (row.tool if words else tool_title(row.tool or "")) or "", words, row.text)
    if result is None:
        return card(None, "running", running) if running else card(None, "unknown", "interrupted")
    took = f"{(result.created_at - row.created_at).total_seconds() * 1000:.0f} ms"
    shown, state, remark = _read_result(result.text)
    if state == "asks":
        asks = worded(wording, row.text, done=False) if wording else ""
        return replace(card(shown, state, remark), words=asks and f"Asked before {asks[0].lower()}{asks[1:]}")
    return card(shown, state, f"{remark}, {took}" if remark else took)


def _reads(row: MessageRow) -> str:
    """The file that the turn of this message waits for; empty if there is none."""
    if row.seq is not None or row.closed_at is not None:
        return ""
    return next((file.name for file in row.attached if file.state != "failed" and file.problem), "")


def _words(row: MessageRow) -> str:
    """The text of a message; empty if it only names an attached file, which is shown anyway."""
    return "" if row.text in {f"[{file.path}]" for file in row.attached} else row.text


def _own(row: MessageRow) -> bool:
    """Whether the person wrote it, as far as the row shows; the inbox is exact."""
    return row.seq is not None and (row.label is Label.OWNER or bool(row.attached))


def _note(row: MessageRow) -> str:
    if row.origin in {REVISED, DELETED}:  # what the agent is told of an edit or deletion
        return ""
    via = f"via {row.origin}" if row.origin not in {"web", "gateway"} else ""
    stopped = "stopped" if row.closed_at is not None and row.platform_id is not None else ""
    withdrawn = f"{row.withdrawn} since" if row.withdrawn else ""
    return " · ".join(filter(None, (via, withdrawn or stopped)))


def _read_result(text: str) -> tuple[str, str, str]:
    """The tool result as it is shown, the state of its call, and a remark: it failed, or waits for an approval."""
    try:
        parsed = json.loads(text)
        shown = json.dumps(parsed, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text, "done", ""
    match parsed:
        case {"error": _, "message": _}:
            return shown, "failed", "failed"
        case {"exit_code": int(code)} if code:
            return shown, "failed", f"exit code {code}"
        case {"waiting_for_approval": str(name)}:
            return shown, "asks", f"see {name}"
        case _:
            return shown, "done", ""
