"""The gateway's condition: what it measures of itself, and findings of the checks of `supaclaw doctor`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class FindingLevel(StrEnum):
    """How bad it is; one `FAIL` makes the exit code of `supaclaw doctor` 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check, and how to fix it."""

    level: FindingLevel
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run of one of the gateway's own jobs; `error` says why it failed."""

    began: datetime
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class JobState:
    """When a job is due, None if it runs now or only when something happens; and its last run that was due."""

    due: datetime | None
    last: JobRun | None = None


@dataclass(frozen=True, slots=True)
class LoopLag:
    """By how many milliseconds the event loop was late: in the last minute, and at worst since the start."""

    worst_ms: float
    p99_ms: float
    worst_ever_ms: float


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Resident bytes; above the ceiling the gateway sheds load, until it is well below."""

    used: int
    ceiling: int
    shedding: bool


@dataclass(frozen=True, slots=True)
class ChannelVitals:
    """How a channel is, in words, and how many seconds ago its platform was heard; None: not yet, or cannot tell."""

    state: str
    heard_ago: float | None = None


class HeartbeatOutcome(StrEnum):
    """How a heartbeat went. `idle`, `skipped`: no model was asked; `ok`, `told`: one was, and had nothing or news."""

    WAITING = "waiting"
    RUNNING = "running"
    IDLE = "idle"
    SKIPPED = "skipped"
    OK = "ok"
    TOLD = "told"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """One heartbeat; `text` is what was told, or why nothing was. While there was none it is waited for since `at`."""

    at: datetime
    outcome: HeartbeatOutcome
    text: str = ""


@dataclass(frozen=True, slots=True)
class Vitals:
    """None means not known. `unclean_ends` counts runs of the last day that were not stopped; `jobs` are next dates."""

    loop: LoopLag | None = None
    memory: MemoryUse | None = None
    channels: Mapping[str, ChannelVitals] = field(default_factory=dict)
    unclean_ends: int = 0
    checkpoints: str | None = None
    files: str | None = None
    """State of the object store that several machines share."""
    heartbeat: str | None = None
    jobs: Mapping[str, datetime | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A measurement for monitoring: values `by` something, such as channels, or the one of "" by nothing."""

    name: str
    meaning: str
    values: Mapping[str, float]
    by: str = ""
