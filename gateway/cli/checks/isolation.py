"""One check can break; the others are made all the same."""

from collections.abc import Iterator
from types import TracebackType

from gateway.cli.checks.finding import Check, Finding, Level, Patient


def findings_of(name: str, check: Check, patient: Patient) -> Iterator[Finding]:
    """What the check finds; that it broke is a finding too."""
    with _Isolated() as isolated:
        yield from check(patient)
    if isolated.broken is not None:
        reason = " ".join(str(isolated.broken).split()) or "no reason given"
        text = f"this check broke: {type(isolated.broken).__name__}: {reason}"
        yield Finding(Level.FAIL, name, text, "a defect of this program: please report it; the other checks count")


class _Isolated:
    """Keeps what is raised inside; an interrupt passes through."""

    broken: Exception | None = None

    def __enter__(self) -> "_Isolated":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            self.broken = error
        return isinstance(error, Exception)
