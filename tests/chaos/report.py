"""The table of what the faults did: collected while the tests run, printed at the end, written into the docs if asked.

`SUPACLAW_CHAOS_REPORT=<file>` has it written between the markers of that file, where the rows of faults that this run
did not make stay as they are: the whole takes hours, and its parts may run one after the other.
"""

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import pytest

from tests.chaos.faults import Fault
from tests.chaos.ledger import Outcome

BEGIN = "<!-- chaos: begin (written by `make chaos`) -->"
END = "<!-- chaos: end -->"
HEAD = ("#", "fault", "promise", "tries", "lost", "duplicated", "given up", "recovery p95", "result")
COLLECTED = pytest.StashKey["Collected"]()


@dataclass
class Row:
    """What all tests of one fault found together."""

    tries: int = 0
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    given_up: int = 0
    recovery: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: bool = False

    def add(self, outcome: Outcome) -> None:
        self.tries += outcome.tries
        self.acknowledged += outcome.acknowledged
        self.lost += len(outcome.lost)
        self.duplicated += len(outcome.duplicated)
        self.given_up += outcome.given_up
        self.recovery += outcome.recovery
        self.failed |= not outcome.is_clean

    def join(self, other: "Row") -> None:
        for own in fields(self):
            value, more = getattr(self, own.name), getattr(other, own.name)
            setattr(self, own.name, value or more if own.name == "failed" else value + more)


class Collected:
    """Told by the tests what they found, and by pytest which of them passed."""

    def __init__(self) -> None:
        self.rows: dict[Fault, Row] = {}
        self.skipped: dict[Fault, str] = {}

    def add(self, fault: Fault, outcome: Outcome, *notes: str) -> None:
        row = self.rows.setdefault(fault, Row())
        row.add(outcome)
        row.notes += notes

    def passed_elsewhere(self, nodeid: str, passed: bool) -> None:
        """A test outside this folder counts as one try of the faults that name it."""
        where, _, rest = nodeid.partition("::")
        for fault in Fault:
            if {where, f"{where}::{rest.partition('[')[0]}"} & set(fault.about.elsewhere):
                self.add(fault, Outcome())
                self.rows[fault].failed |= not passed

    def handed_over(self) -> str:
        """As text, from a process of xdist to the one that prints the table."""
        rows = {fault.name: asdict(row) for fault, row in self.rows.items()}
        return json.dumps({"rows": rows, "skipped": {fault.name: why for fault, why in self.skipped.items()}})

    def take_over(self, text: str) -> None:
        other = json.loads(text)
        for name, row in other["rows"].items():
            self.rows.setdefault(Fault[name], Row()).join(Row(**row))
        self.skipped |= {Fault[name]: why for name, why in other["skipped"].items()}

    def failed(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.rows.setdefault(fault, Row()).failed = True

    def table(self, before: str = "") -> str:
        """Markdown; a fault that was not made in this run has its row of the table before, else it says why."""
        kept = {tuple(_cells_of(line)[:3]): line for line in before.splitlines() if line.startswith("| ")}
        lines = [_line(HEAD), _line(["---:", "---", "---", "---:", "---:", "---:", "---:", "---:", "---"])]
        return "\n".join(
            lines + [self._row(fault, kept) for fault in sorted(Fault, key=lambda fault: fault.about.number)]
        )

    def _row(self, fault: Fault, kept: Mapping[tuple[str, ...], str]) -> str:
        about = fault.about
        before = kept.get((str(about.number), about.fault, about.promise))
        made = fault in self.rows or about.absent or fault in self.skipped
        return before if before and not made else _line(self._cells(fault))

    def _cells(self, fault: Fault) -> Sequence[str]:
        about, row = fault.about, self.rows.get(fault)
        head = (str(about.number), about.fault, about.promise)
        if row is None:
            why = about.absent or self.skipped.get(fault, "not in this run")
            return *head, "–", "–", "–", "–", "–", why
        result = "; ".join(["**FAILED**" if row.failed else "holds", *dict.fromkeys(row.notes)])
        figures = map(str, (row.tries, row.lost, row.duplicated, row.given_up))
        return *head, *figures, f"{p95(row.recovery):.2f} s" if row.recovery else "–", result


class Watcher:
    """The pytest plugin; registered once, so that it hears of tests in other folders too."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> object:
        report: pytest.TestReport = yield
        marked = item.get_closest_marker("fault")
        faults: tuple[Fault, ...] = marked.args if marked else ()
        if report.failed:
            self._collected.failed(faults)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._collected.skipped.update(dict.fromkeys(faults, report.longrepr[2]))
        if report.when == "call" and not faults:
            self._collected.passed_elsewhere(item.nodeid, report.passed)
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["chaos"] = self._collected.handed_over()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        if told := getattr(node, "workeroutput", {}).get("chaos"):
            self._collected.take_over(told)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._collected.rows or os.environ.get("SUPACLAW_CHAOS") != "full":
            return
        terminalreporter.write_sep("=", "what the faults did")
        terminalreporter.write_line(self._collected.table())
        if file := os.environ.get("SUPACLAW_CHAOS_REPORT"):
            before = between_markers(Path(file))
            put_between_markers(Path(file), f"{machine()}\n\n{self._collected.table(before)}")
            terminalreporter.write_line(f"written to {file}")


def p95(figures: Sequence[float]) -> float:
    """The smallest figure that 95 % of them do not exceed."""
    return sorted(figures)[math.ceil(len(figures) * 0.95) - 1]


def between_markers(file: Path) -> str:
    """What stands there now; raises `ValueError` if the markers are not there."""
    return _parted(file)[1]


def put_between_markers(file: Path, text: str) -> None:
    """Replace what stands between them; raises `ValueError` if they are not there."""
    head, _, tail = _parted(file)
    file.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


def _parted(file: Path) -> tuple[str, str, str]:
    head, begin, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    between, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{file} has no lines {BEGIN} and {END}")
    return head, between, tail


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}."


def _cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
