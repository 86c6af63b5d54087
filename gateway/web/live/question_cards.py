"""Open questions as cards with the forms that answer them: the same in the chat, on Approvals and on a task."""

import re
from collections.abc import Mapping, Sequence

from gateway.agent.work.approvals import why_asked
from gateway.domain.conversation.diff import legible
from gateway.domain.ids import ReviewId
from gateway.store.trust.reviews import ReviewRow
from gateway.web.pages import Pages

_ASKED = re.compile(r"^\*\*(A\d+): ", re.MULTILINE)


def names_in(notice: str) -> tuple[str, ...]:
    """The questions that a notice of the gateway asks; `flow/approvals/questions` writes their heads."""
    return tuple(_ASKED.findall(notice))


def question_cards(
    pages: Pages, rows: Sequence[ReviewRow], channels: Mapping[ReviewId, str] | None = None
) -> dict[str, str]:
    """The cards by their element ids; `channels` says where each was asked, None: all in the chat that shows them."""
    return {
        row.name: pages.part("question", row.name, row, legible(row.preview), why_asked(row), asked_in(row, channels))
        for row in rows
    }


def asked_in(row: ReviewRow, channels: Mapping[ReviewId, str] | None) -> str:
    """Where a question comes from, in words."""
    if row.task_id is None:
        return "asked by the gateway"
    if channels is None:
        return "asked here" if row.address_id is not None else "asked by an unattended run"
    return f"asked by the agent in a {channels[row.id]} chat" if row.id in channels else "asked by an unattended run"
