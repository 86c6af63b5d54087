"""Questions as a chat shows them: those of one task together, each whole or not to be approved there."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from gateway.agent.approvals import where_whole, why
from gateway.domain.channel import Button
from gateway.domain.diff import CHAT_CHARS, CHAT_LINES, for_chat
from gateway.store.reviews import ReviewRow


def batches(reviews: Sequence[ReviewRow]) -> list[list[ReviewRow]]:
    """What goes into one message: questions of the same task, to the same person, while all of them are shown whole."""
    found: list[list[ReviewRow]] = []
    for _, each in groupby(reviews, lambda review: (review.task_id, review.asked_id)):
        filled = 1.0
        for review in each:
            filled += (takes := _takes(review))
            if filled > 1:
                found.append([])
                filled = takes
            found[-1].append(review)
    return found


def _takes(review: ReviewRow) -> float:
    """The part of a message it needs; all of it if it's cut, or the gateway's own."""
    shown, left = for_chat(review.preview)
    if left or review.task_id is None:
        return 1.0
    return max(len(shown) / CHAT_CHARS, (shown.count("\n") + 1) / CHAT_LINES)


def rendered(reviews: Sequence[ReviewRow]) -> tuple[str, str, tuple[Button, ...]]:
    """The question without what the agent wrote, and as a chat shows it: in blocks, between the gateway's words."""
    kept, sent = zip(*map(_one, reviews), strict=True)
    names = " ".join(review.name for review in reviews)
    cut = any(for_chat(review.preview)[1] for review in reviews)
    every = " all" if len(reviews) > 1 else ""
    buttons = Button(f"Approve{every}", f"/approve {names}"), Button(f"Deny{every}", f"/deny {names}")
    expires = reviews[0].expires_at
    soon = expires is None or expires - reviews[0].created_at < timedelta(hours=12)
    until = "" if expires is None else f" It expires at {expires:{'%H:%M' if soon else '%H:%M on %d %B'}} UTC."
    first = reviews[0].name
    answer = "" if cut else f"/approve {first} or /deny {first}."
    if every:
        answer = f"Approve or deny them together, or one by one, as with /approve {first}."
    return "\n".join(kept) + until, "\n".join([*sent, answer]).rstrip() + until, buttons[1:] if cut else buttons


def _one(review: ReviewRow) -> tuple[str, str]:
    shown, left = for_chat(review.preview)
    whole = where_whole(review)
    asks = "may I make this change?" if review.kind == "approval" else "what do you say?"
    head = f"**{review.name}: {asks}** ({review.tool})\n{why(review)}\n"
    more = f"\n{left} more lines not shown. {whole}" if left else ""
    return f"{head}{whole}", f"{head}```\n{shown}\n```{more}"
