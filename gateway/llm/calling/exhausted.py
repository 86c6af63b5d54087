"""The message a user gets when every model failed."""

from collections.abc import Sequence
from itertools import groupby

from gateway.domain.conversation.model import Attempt
from gateway.llm.catalog import split, vendor
from gateway.llm.errors import ErrorKind, ModelError


def explain(attempts: Sequence[Attempt], last: ModelError) -> str:
    """List the models in order with their errors, then what to do about the last one."""
    groups = [(attempt, len(list(same))) for attempt, same in groupby(attempts)]
    lines = [f"{place}. {_line(*group)}" for place, group in enumerate(groups, start=1)]
    return "\n".join(["**No model could answer.**", *lines, "", _advice(attempts[-1].model, last)])


def _line(attempt: Attempt, tries: int) -> str:
    times = f" ({tries} times)" if tries > 1 else ""
    return f"`{attempt.model}`: {attempt.error}{times}: {attempt.message}"


def _advice(model: str, last: ModelError) -> str:
    entry = vendor(split(model)[0])
    name = entry.title
    match last.kind:
        case ErrorKind.RATE_LIMIT | ErrorKind.OVERLOADED:
            when = f"in about {_span(last.retry_after)}" if last.retry_after else "in a minute"
            return f"Wait and send your message again {when}, or add another model to `models.fallbacks`."
        case ErrorKind.AUTH:
            page = f" at {entry.keys_page}" if entry.keys_page else ""
            place = f"`{entry.keys[0]}` or " if entry.keys else ""
            return f"Check the {name} key{page} and set it in {place}`models.providers.{entry.prefix}.api_key`."
        case ErrorKind.NO_CREDIT:
            return f"Add credit to your {name} account, or add another model to `models.fallbacks`."
        case ErrorKind.UNKNOWN_MODEL:
            return "Check the model's name: `/model` shows what is configured, `models.primary` changes it."
        case ErrorKind.CONTEXT_LENGTH:
            return "This conversation is too long for the model: start over with `/new`, or choose a larger model."
        case ErrorKind.BAD_REQUEST:
            return "The request was refused; trying again will not help. `/new` starts over, `/model` shows the model."
        case ErrorKind.NETWORK if entry.base_url and not entry.keys:
            return f"Check that {name} is running, then send your message again."
        case ErrorKind.ENDLESS:
            return "Send your message again in other words, or choose another model: `/model` shows what is configured."
        case ErrorKind.SERVER | ErrorKind.NETWORK | ErrorKind.SILENCE:
            return "Wait a little and send your message again; `/model` shows the models and `/status` the connections."


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
