"""The input prompt, with a history that outlives the session."""

import os
import readline
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.console import echo
from gateway.cli.conversation.attach import completions

HISTORY_LINES = 1000


@dataclass(frozen=True, slots=True)
class Prompt:
    """Reads lines with editing; the history file is readable by its owner only."""

    history: Path

    def lines(self) -> Iterator[str]:
        """Yield the lines typed, without empty ones, until Ctrl-D, or Ctrl-C at the prompt."""
        with suppress(OSError):
            readline.read_history_file(self.history)
        readline.set_history_length(HISTORY_LINES)
        readline.set_completer_delims("")
        readline.set_completer(_completion)
        # macOS ships another library under the same name
        readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
        try:
            while True:
                if text := input("› ").strip():
                    yield text
        except (EOFError, KeyboardInterrupt):
            echo()
        finally:
            self._save_history()

    def _save_history(self) -> None:
        with suppress(OSError):
            self.history.touch(mode=0o600)
            os.chmod(self.history, 0o600)
            readline.write_history_file(self.history)


def _completion(line: str, place: int) -> str | None:
    """The whole line with its path completed."""
    found = completions(line)
    return found[place] if place < len(found) else None
