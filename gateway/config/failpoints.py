"""Points where a crash test kills the process: `SUPACLAW_FAIL=<step>[:n]`."""

import os
import signal
from enum import StrEnum

from gateway.config.problems import nearest
from gateway.domain.errors import ConfigError


class Step(StrEnum):
    """A named point in the handling of a message; `about` describes it."""

    about: str

    def __new__(cls, name: str, about: str) -> "Step":
        """A step is a string, its name, with a description."""
        step = str.__new__(cls, name)
        step._value_ = name
        step.about = about
        return step

    INBOUND_RECEIVED = "inbound.received", "a batch was received, nothing is stored"
    INBOUND_JOURNALED = "inbound.journaled", "the message is in its session's journal, not in the database"
    INBOUND_SPOOLED = "inbound.spooled", "without the database, the message is on disk, not acknowledged"
    INBOUND_COMMITTED = "inbound.committed", "the batch is stored, not acknowledged to the platform"
    INGEST_KEPT = "ingest.kept", "an attachment is saved as a file, not linked to its message"
    INGEST_READ = "ingest.read", "the text of a file is saved beside it, not recorded in the database"
    COMMAND_ACCEPTED = "command.accepted", "a slash command is stored, its effect is not"
    COMMAND_COMMITTED = "command.committed", "a slash command's effect and reply are stored"
    TURN_CLAIMED = "turn.claimed", "a turn has its lease and has read nothing"
    TURN_TAKEN = "turn.taken", "the unread messages are in the transcript"
    SUMMARY_READY = "summary.ready", "a summary of the conversation is written, not stored"
    SUMMARY_COMMITTED = "summary.committed", "the summary is stored and replaces what is older"
    MODEL_REPLIED = "model.replied", "a model call has finished, its reply is not stored"
    STEP_COMMITTED = "step.committed", "the reply and its tool intents are stored, no tool has run"
    TOOL_RAN = "tool.ran", "a tool has run, its result is not stored"
    RESULT_COMMITTED = "result.committed", "a tool's result is stored"
    ANSWER_READY = "answer.ready", "the answer is complete, not stored"
    ANSWER_COMMITTED = "answer.committed", "the answer and its outbox rows are stored, nothing is sent"
    OUTBOX_SENDING = "outbox.sending", "`sending` is stored, the request is not sent"
    OUTBOX_REQUESTED = "outbox.requested", "the platform has accepted the message, its id is not stored"
    OUTBOX_SENT = "outbox.sent", "the platform's id is stored"
    NODE_TURNED = "node.turned", "a node's turn has ended, what follows from it is not stored"
    NODE_ACTED = "node.acted", "what a node asked of the engine is stored: its subtasks, its question, its hand-off"
    APPROVAL_STARTED = "approval.started", "a call that a person allowed is noted as begun, it has not run"
    APPROVAL_RAN = "approval.ran", "a call that a person allowed has run, its result is not stored"
    SCHEDULE_DUE = "schedule.due", "due schedules are read, nothing is stored"
    MEMORY_INDEXED = "memory.indexed", "messages are rows of memory, their words are not counted"
    MEMORY_COUNTED = "memory.counted", "the words of a batch of memory are counted"
    MEMORY_EMBEDDED = "memory.embedded", "a batch of vectors is stored"
    MEMORY_JUDGED = "memory.judged", "a model has said what is to be merged and replaced, nothing is stored"
    ERASURE_BEGUN = "erasure.begun", "an erasure is noted as unfinished, nothing is erased"
    ERASURE_FILE = "erasure.file", "a file is cleaned"
    ERASURE_CHECKPOINTS = "erasure.checkpoints", "the clean history is in force, the old one is still on disk"
    ERASURE_COMMITTED = "erasure.committed", "no row has it any more, pages of tables may"
    ERASURE_VACUUMED = "erasure.vacuumed", "nothing is left, the erasure is noted as unfinished"
    SYNC_STORED = "sync.stored", "a file's content is in the object store, no path has it"
    SYNC_SET = "sync.set", "a path has its new content for all machines, this one has not noted it"
    SYNC_FETCHED = "sync.fetched", "another machine's file is fetched, it is not in its place"
    SYNC_PLACED = "sync.placed", "another machine's file is in its place, this one has not noted it"
    OPENCLAW_STEP = "openclaw.step", "a step of an installation in OpenClaw begins, has written a file, or has ended"
    SCHEDULE_ENQUEUED = "schedule.enqueued", "due schedules are queued, and their next slots stored"


class Failpoints:
    """Kills this process the n-th time the armed step is reached; `armed` is `<step>[:n]` or None."""

    def __init__(self, armed: str | None) -> None:
        self._step: Step | None
        self._step, self._left = _parse(armed) if armed else (None, 0)

    def reach(self, step: Step) -> None:
        """Kill the process if this step is armed and its count is reached."""
        if step is self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _parse(armed: str) -> tuple[Step, int]:
    name, _, count = armed.partition(":")
    known = {step.value: step for step in Step}
    if name not in known:
        raise ConfigError(f"SUPACLAW_FAIL: unknown step {name}; {nearest(name, list(known))}")
    if count and (not count.isdecimal() or int(count) < 1):
        raise ConfigError(f"SUPACLAW_FAIL: {armed}: write <step>:<n>, n from 1")
    return known[name], int(count or 1)
