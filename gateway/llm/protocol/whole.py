"""Answers that come whole, in the forms that servers give them: the words of recordings, recordings, vectors."""

import json
import re
from array import array
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress

from gateway.domain.json import json_or_text
from gateway.llm.protocol.answer_reader import DataLines
from gateway.llm.protocol.refusal import no_answer
from gateway.llm.provider import Transcription, if_sensible

_SOUND = re.compile(rb'"(?:data:[^",]*,)?((?:[A-Za-z0-9+/]{4}){250,}(?:[A-Za-z0-9+/]{2,3}={1,2})?)"')
"""A recording in base64; names of requests are shorter."""


def read_transcription(answer: bytes, mime: str) -> Transcription:
    """The words of a recording, from an object, events, lines or a text; raises `ModelError` if there are none."""
    told = [each for each in DataLines().feed(answer + b"\n\n") if each.startswith(b"{")]
    heard = [found for each in told if (found := if_sensible(each, Transcription.model_validate_json))]
    if not told and answer[:1] not in b"[<" and (mime == "text/plain" or answer[:1] == b'"'):
        heard = [Transcription(text=str(json_or_text(answer.decode("utf-8", "replace"))))]
    if not heard:
        raise no_answer(told[-1] if told else answer)
    return heard[-1].model_copy(update={"text": " ".join(each.text for each in heard)})


def read_recording(answer: bytes) -> bytes:
    """The recording, also in base64 within JSON; raises `ModelError` for anything else that is known to be none."""
    if answer[:1] == b"{" and (found := _SOUND.search(answer)):
        return b64decode(found[1])
    if answer[:1] in b"{[<":
        raise no_answer(answer)
    return answer


def read_vectors(answer: bytes) -> list[Sequence[float]]:
    """The vectors in their order, unchecked; raises `ModelError` for an answer of another form."""
    with suppress(KeyError, TypeError, ValueError, RecursionError):
        match json.loads(answer):
            case {"data": [*found]} | {"embeddings": [*found]} | {"embeddings": {"float": [*found]}} | [*found]:
                each = [one if isinstance(one, dict) else {"embedding": one} for one in found]
                vectors = (one["embedding"] for one in sorted(each, key=lambda one: one.get("index") or 0))
                return [one if isinstance(one, list) else array("f", b64decode(one)) for one in vectors]
    raise no_answer(answer)
