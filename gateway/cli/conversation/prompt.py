"""The input prompt: several lines, pasting, and a history that outlives the session."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from gateway.cli.terminal.console import echo


def typed_messages(history: Path, complete: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """Yield typed or pasted texts that aren't empty, until Ctrl-D, or Ctrl-C at an empty prompt.

    They are read with line editing; `complete` yields whole lines that begin with the typed one. Only the user can
    read the history file.
    """
    session: PromptSession[str] = PromptSession(
        "› ",
        history=_private(history),
        completer=_Lines(complete),
        complete_while_typing=False,
        key_bindings=_keys(),
        prompt_continuation="  ",
    )
    try:
        while True:
            if text := session.prompt().strip():
                yield text
    except (EOFError, KeyboardInterrupt):
        echo()


class _Lines(Completer):
    """Completes whole lines."""

    def __init__(self, complete: Callable[[str], Iterable[str]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the whole lines that the typed one may become."""
        del complete_event
        line = document.text_before_cursor
        yield from (Completion(found, start_position=-len(line)) for found in self._complete(line))


def _keys() -> KeyBindings:
    """Alt-Enter, or Enter after a backslash, begins a new line; Ctrl-C clears the text."""
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


def _private(file: Path) -> History:
    """The history in the file; in memory if the file can't be written."""
    try:
        file.touch(mode=0o600)
        os.chmod(file, 0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(file)
