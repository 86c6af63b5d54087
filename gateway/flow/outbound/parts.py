"""Parts: what one message becomes on its way out, decided before it is committed."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.domain.channels.channel import Button
from gateway.domain.ids import FileId
from gateway.domain.text.splitting import split, utf16_len
from gateway.domain.text.texts import storable
from gateway.store.delivery.outbox import Part

MAX_CAPTION = 1000
"""What every messenger takes below a file, in UTF-16 units."""


def parts(
    text: str,
    limit: int,
    files: Sequence[FileId] = (),
    buttons: Sequence[Button] = (),
    reply_to: str | None = None,
    most_marks: int | None = None,
    heading: str = "",
) -> list[Part]:
    """The text in parts as `split` makes them, the last with the buttons; then the files, in order.

    A short text without buttons becomes the caption of the first file. Only the first part is a reply. Every part
    begins with the `heading`.
    """
    top = f"{heading}\n\n" if heading else ""
    made = [Part(f"{top}{each}") for each in split(storable(text), limit - utf16_len(top), most_marks)]
    if made and buttons:
        made[-1] = replace(made[-1], buttons=tuple(buttons))
    if len(made) == 1 and files and not buttons and utf16_len(made[0].text) <= MAX_CAPTION:
        made, files = [replace(made[0], file=files[0])], files[1:]
    made += [Part(heading, file=file) for file in files]
    if made and reply_to is not None:
        made[0] = replace(made[0], reply_to=reply_to)
    return made
