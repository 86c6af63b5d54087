"""The text of a recording, by the provider that the owner chose for it."""

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gateway.domain.conversation.model import Reply
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.llm.errors import ModelError
from gateway.store.files.files import NO_SPEECH, NO_TRANSCRIPTION

TRANSCRIBE_SECONDS = 300.0
MAX_AUDIO_BYTES = 25 * 1024**2
"""The largest recording that transcription services accept."""
OUT_OF_BUDGET = "it isn't transcribed: the model budget is used up; it is tried again later"
_LATER = "; it is tried again later, or at once when it is sent again or read"
_EXTENSIONS = {
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/wav": "wav",
    "audio/flac": "flac",
    "audio/webm": "webm",
    "video/webm": "webm",
    "video/mp4": "mp4",
}
"""The formats that every service takes, and what a file has to be called there."""

Transcribe: TypeAlias = Callable[[str, str, bytes], Awaitable[Reply]]
"""Transcribes a recording, by its name, its MIME type and its bytes; raises `SupaclawError`."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text, or the problem in one line; a `temporary` one may be gone later."""

    text: str = ""
    problem: str = ""
    temporary: bool = False
    reply: Reply | None = None
    """That of the model, if it was asked and answered."""


async def transcribe(hear: Transcribe | None, source: Path, mime: str) -> Transcript:
    """Transcribe the file, named after what it is; raises `TryAgainLater`, and `OSError` for the path."""
    if hear is None:
        return Transcript(problem=NO_TRANSCRIPTION, temporary=True)
    if (await asyncio.to_thread(source.stat)).st_size > MAX_AUDIO_BYTES:
        return Transcript(problem=f"it isn't transcribed: only files up to {MAX_AUDIO_BYTES >> 20} MB are")
    name = f"recording.{_EXTENSIONS.get(mime) or (mimetypes.guess_extension(mime) or '.bin').lstrip('.')}"
    try:
        async with asyncio.timeout(TRANSCRIBE_SECONDS):
            reply = await hear(name, mime, await asyncio.to_thread(source.read_bytes))
    except TimeoutError:
        return Transcript(problem=f"it isn't transcribed: that took too long{_LATER}", temporary=True)
    except TryAgainLater:
        raise
    except SupaclawError as exc:
        return _failure(exc, mime)
    text = reply.text.strip()
    return Transcript(text, "" if text else NO_SPEECH, reply=reply)


def _failure(error: SupaclawError, mime: str) -> Transcript:
    temporary = not isinstance(error, ModelError) or error.temporary
    advice = "" if mime in _EXTENSIONS else f"; few services take {mime}: send it as ogg, m4a, mp3 or wav"
    reason = " ".join(str(error).split())[:160]
    return Transcript(
        problem=f"it couldn't be transcribed: {reason}{_LATER if temporary else advice}", temporary=temporary
    )
