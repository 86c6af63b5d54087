"""Rows of the report, printed as they come."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A figure. `bad`: an act of an attacker passed that nobody approved."""

    title: str
    told: str
    bad: bool = False

    def shown(self) -> "Row":
        """The row, after printing it."""
        show(f"{'FAILED ' if self.bad else ''}{self.title}: {self.told}")
        return self


def show(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def failed(rows: Sequence[Row]) -> int:
    """The exit code; names the rows that failed."""
    bad = [row.title for row in rows if row.bad]
    show(f"{len(bad)} of {len(rows)} rows failed{': ' + '; '.join(bad) if bad else ''}")
    return 1 if bad else 0
