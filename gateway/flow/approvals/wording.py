"""Questions as a chat shows them: those of one task together, each whole or not to be approved there."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from gateway.agent.work.approvals import where_shown_whole, why_asked
from gateway.domain.channels.channel import Button
from gateway.domain.conversation.diff import CHAT_CHARS, CHAT_LINES, for_chat
from gateway.domain.work.trees import Verdict
from gateway.store.trust.reviews import DOUBT, ReviewRow


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
    if left or review.task_id is None or review.tool == DOUBT:
        return 1.0
    return max(len(shown) / CHAT_CHARS, (shown.count("\n") + 1) / CHAT_LINES)


def rendered(reviews: Sequence[ReviewRow]) -> tuple[str, str, tuple[Button, ...]]:
    """The question without what the agent wrote, and as a chat shows it: in blocks, between the gateway's words."""
    kept, sent = zip(*map(_one, reviews), strict=True)
    cut = any(for_chat(review.preview)[1] for review in reviews)
    answer, buttons = _of_doubt(reviews[0].name) if reviews[0].tool == DOUBT else _of_requests(reviews)
    expires = reviews[0].expires_at
    soon = expires is None or expires - reviews[0].created_at < timedelta(hours=12)
    until = "" if expires is None else f" It expires at {expires:{'%H:%M' if soon else '%H:%M on %d %B'}} UTC."
    if cut:
        answer, buttons = "", buttons[1:]
    return "\n".join(kept) + until, "\n".join([*sent, answer]).rstrip() + until, buttons


def _of_requests(reviews: Sequence[ReviewRow]) -> tuple[str, tuple[Button, ...]]:
    """How they are answered; the yes comes first, which isn't taken where something is cut."""
    names, first = " ".join(review.name for review in reviews), reviews[0].name
    if len(reviews) > 1:
        answer = f"Approve or deny them together, or one by one, as with /approve {first}."
        return answer, (Button("Approve all", f"/approve {names}"), Button("Deny all", f"/deny {names}"))
    answer = f"/approve {first} or /deny {first}."
    return answer, (Button("Approve", f"/approve {first}"), Button("Deny", f"/deny {first}"))


def _of_doubt(name: str) -> tuple[str, tuple[Button, ...]]:
    """The same of a call that may have run."""
    again, ran, give_up = f"/approve {name}", f"/deny {name} {Verdict.RAN}", f"/deny {name} {Verdict.GIVE_UP}"
    answer = f"Look there first. {again} runs it again, {ran} goes on without it, {give_up} ends the task."
    return answer, (Button("Run it again", again), Button("It ran", ran), Button("Give up", give_up))


def _one(review: ReviewRow) -> tuple[str, str]:
    shown, left = for_chat(review.preview)
    whole = where_shown_whole(review)
    asks = "may I make this change?" if review.kind == "approval" else "what do you say?"
    if review.tool == DOUBT:
        asks = "did this run?"
    what = review.title if review.tool == DOUBT else review.tool
    head = f"**{review.name}: {asks}** ({what})\n{why_asked(review)}\n"
    more = f"\n{left} more lines not shown. {whole}" if left else ""
    return f"{head}{whole}", f"{head}```\n{shown}\n```{more}"
