"""The catalogue: every fault, what is promised under it, and where that is proved, or why it is not.

`python -m tests.chaos.faults` prints the test files outside this folder that prove some of it.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class About:
    """`elsewhere` names tests of other folders (file::function) whose passes count; `absent` says why there is none."""

    number: int
    fault: str
    promise: str
    elsewhere: tuple[str, ...] = ()
    absent: str = ""


class Fault(StrEnum):
    """One row of the table, or one of several with the same number."""

    about: About

    def __new__(
        cls, name: str, number: int, fault: str, promise: str, elsewhere: tuple[str, ...] = (), absent: str = ""
    ) -> "Fault":
        """A fault is its name, with its row beside it."""
        made = str.__new__(cls, name)
        made._value_ = name
        made.about = About(number, fault, promise, elsewhere, absent)
        return made

    STEP = (
        "step",
        1,
        "SIGKILL at each named step",
        "nothing lost, nothing sent twice",
        (
            "tests/journeys/test_crash.py::test_a_telegram_message_survives",
            "tests/journeys/test_crash.py::test_a_request_to_the_api_survives",
            "tests/journeys/test_crash.py::test_the_embedded_postgres_is_found_running",
        ),
    )
    STEP_LOAD_TELEGRAM = "step.telegram", 1, "SIGKILL at each named step under load, Telegram", "the same"
    STEP_LOAD_API = "step.api", 1, "SIGKILL at each named step under load, /v1", "the same"
    STEP_SCHEDULE = (
        "step.schedule",
        1,
        "SIGKILL while schedules are due",
        "each slot runs once, its answer is sent once",
        ("tests/journeys/test_schedule_kills.py", "tests/background/upkeep/test_schedules.py"),
    )
    RANDOM = "random", 2, "SIGKILL at random times under load", "the same; being worked on again < 3 s (p95)"
    POSTMASTER = (
        "postmaster",
        3,
        "kill -9 of the Postgres postmaster in a burst",
        "reconnects, nothing acknowledged lost",
        ("tests/journeys/test_database.py::test_a_database_killed_in_a_burst_loses_nothing",),
    )
    RESTARTED = "restarted", 4, "Postgres restarted, fast and immediate", "the same"
    STOPPED = (
        "stopped",
        5,
        "Postgres away for a while (stands for 10 min)",
        "what arrives is spooled or not acknowledged",
    )
    STOPPED_KILLED = (
        "stopped.killed",
        5,
        "the same, and SIGKILL while it is away",
        "what was acknowledged is answered once",
    )
    SLOW = "slow", 6, "Postgres takes 2 s per query", "the event loop stays alive (p99 < 100 ms)"
    EXHAUSTED = "exhausted", 7, "no connection left in Postgres", "the gateway waits and continues"
    SERIALIZATION = "serialization", 8, "serialization failures and deadlocks", "retried, nothing lost"
    LINK = "link", 8, "connections to Postgres reset, half open, sliced", "nothing lost"
    COMMIT = (
        "commit",
        8,
        "connection lost at COMMIT: outcome unknown",
        "nothing lost, nothing twice",
        ("tests/flow/outbound/test_outages.py",),
    )
    DISK_DATA = "disk.data", 9, "disk full under the data folder", "no corruption, continues when there is room"
    DISK_WORKSPACE = (
        "disk.workspace",
        10,
        "disk full under the workspace only",
        "the tool fails, the conversation does not",
    )
    READ_ONLY = (
        "read-only",
        11,
        "read-only data folder at the start",
        "one line says so, exit code ≠ 0",
        ("tests/journeys/test_refusals.py::test_a_data_folder_that_cannot_be_written",),
    )
    JOURNAL_DAMAGED = (
        "journal",
        12,
        "damaged session file",
        "the database is authoritative, the file is recreated",
        ("tests/flow/journal/test_faults.py",),
    )
    CHECKPOINT = (
        "checkpoint",
        13,
        "torn checkpoint",
        "the old one is kept",
        ("tests/workspace/test_checkpoints.py",),
    )
    MODEL_REFUSES = (
        "model.refuses",
        14,
        "model answers 429, 500, nonsense",
        "retry, fallback, at most one error message",
        (
            "tests/journeys/test_models.py::test_a_model_that_fails_is_replaced_by_the_next",
            "tests/journeys/test_models.py::test_a_wrong_key_is_explained_once_and_kills_nothing",
        ),
    )
    MODEL_CUT = "model.cut", 15, "model stream cut, reset or slow in mid-answer", "one whole answer"
    MODEL_GARBLED = "model.garbled", 16, "empty answer, garbled tool call", "repaired or reported, no crash"
    MODEL_HANGS = "model.hangs", 17, "model never answers", "/stop works within 1 s, others are answered"
    DUPLICATE = "duplicate", 18, "one update delivered 50 times", "one turn"
    SHUFFLED = "shuffled", 19, "updates out of order", "every message answered, each once"
    EDITED = "edited", 20, "messages edited before and during a turn", "no orphan, the newest unread text counts"
    TOO_FAST = "too-fast", 21, "platform says 429 retry_after", "obeyed, order kept"
    ACCEPTED_SILENT = (
        "accepted",
        22,
        "message sent, its receipt lost (cut, hang, 5xx)",
        "at most one visible, doubt is reported",
    )
    DISCONNECTED = "disconnected", 23, "platform away (reset, half open, refusing)", "all handled once after it returns"
    KICKED = "kicked", 24, "bot blocked by the person", "one attempt, a dead letter, others go on"
    POISON = (
        "poison",
        25,
        "a message that kills the process",
        "given up after 3 attempts with a notice, others answered",
    )
    GARBAGE = (
        "garbage",
        26,
        "malformed updates",
        "skipped and logged, others answered",
        ("tests/channels/test_telegram_updates.py",),
    )
    HUGE = "huge", 27, "a message of 1 MB, 10,000 entities", "bounded: memory +50 MB at most"
    BOMB = (
        "bomb",
        28,
        "zip, PDF and image bombs",
        "only the CPU process can be killed; the agent knows why",
        ("tests/ingest/test_extraction.py",),
    )
    FLOOD = "flood", 29, "1,000 messages at once from members", "the owner is answered meanwhile"
    SLOW_READER = "slow-reader", 30, "viewers of the web page that do not read", "no memory growth"
    CROWD = "crowd", 31, "1,000 chats at once", "all answered"
    CLOCK = "clock", 32, "clock steps by an hour, both ways", "nothing twice, nothing stuck"
    CLOCK_SCHEDULES = "clock.schedules", 32, "the same while schedules are due", "each slot once"
    DST = "dst", 33, "daylight saving, 30 zones", "each slot of a schedule once"
    CALENDAR = "calendar", 34, "leap day, year end, 2038", "each slot of a schedule once"
    ASLEEP = "asleep", 35, "machine asleep for 8 h", "missed slots are run or counted as the schedule says, each once"
    SUSPENDED = (
        "suspended",
        35,
        "process frozen for 40 s (suspend): its lease is lost",
        "the zombie is fenced, one answer",
        ("tests/store/test_zombies.py",),
    )
    TWO_GATEWAYS = (
        "two",
        36,
        "two gateways on one database",
        "the second waits; takes over from a dead or frozen one in 15 s",
        (
            "tests/journeys/test_machines.py::test_one_that_stops_gives_way_and_one_that_was_frozen_leaves",
            "tests/journeys/test_refusals.py::test_a_second_gateway_on_the_same_data",
        ),
    )
    TWO_SCHEDULERS = "two.schedulers", 36, "two gateways look at the same schedules at once", "each slot once"
    CONFIG = (
        "config",
        37,
        "config.json half written",
        "the old one stays in use, the owner gets a notice",
        ("tests/journeys/test_configuration.py::test_a_broken_edit_changes_nothing_and_is_told",),
    )
    TERMINATED = (
        "terminated",
        38,
        "SIGTERM during a turn",
        "drains ≤ 10 s, nothing lost",
        (
            "tests/journeys/test_stopping.py::test_a_turn_under_way_is_finished_before_the_end",
            "tests/journeys/test_stopping.py::test_a_turn_that_takes_too_long_is_answered_after_the_next_start",
        ),
    )
    JAIL = "jail", 39, "a command out of memory", "it is ended, the agent knows why, others are answered"
    CHILDREN = (
        "children",
        40,
        "a child that ignores signals, detaches and hides",
        "gone with /stop, its gateway's end or its SIGKILL",
    )
    FORK_BOMB = "fork-bomb", 63, "SIGKILL of the gateway while a fork bomb runs", "no process of it is left"
    FILLED = "filled", 64, "a command fills the disk", "it is ended, some room is left, the next one can delete"
    OUTPUT = "output", 65, "a command writes 1 GB", "memory +40 MB at most, others are answered"
    DNS = "dns", 41, "names that do not resolve", "reported, the event loop does not wait"
    TLS = "tls", 42, "a wrong certificate", "fails closed: no byte of the request leaves"
    MIGRATION = (
        "migration",
        43,
        "killed in a migration",
        "transactional, resumable",
        (
            "tests/store/test_migrate.py::test_a_migration_that_fails_leaves_nothing_of_itself",
            "tests/store/test_migrate.py::test_a_program_killed_in_the_middle_leaves_the_number_before_and_the_next_one_finishes",
            "tests/store/test_migrate.py::test_a_newer_database_is_left_alone",
        ),
    )
    RESTORE = (
        "restore",
        44,
        "restore on a new host",
        "the same answers, nothing of the old outbox sent again",
        ("tests/journeys/test_backup_drill.py",),
    )
    SOAK = "soak", 45, "long running", "memory slope < 1 MB/h", (), "`make soak`"
    BLOCKED_LOOP = (
        "blocked",
        46,
        "something blocks the event loop",
        "noticed",
        ("tests/background/upkeep/test_event_loop.py",),
    )
    LOGS = "logs", 47, "log output closed or full", "the gateway continues"
    INTRUDERS = (
        "intruders",
        48,
        "half headers, half bodies, huge bodies and floods of guesses, without a credential",
        "event loop p99 < 100 ms, the owner's /ping < 1 s",
    )
    REFUSES = (
        "refuses",
        49,
        "the database refuses: login, rights, read-only, a pooler's errors, limits",
        "an outage: no dead letters, all answered without a restart",
    )
    START_WITHOUT = (
        "start.without",
        50,
        "the database is away, refuses or vanishes while the gateway starts",
        "it waits, says so, and starts when it can; SIGTERM ends it",
    )
    POWER_CUT = (
        "power-cut",
        60,
        "files empty, torn, zeros or garbage after a power cut; a recycled pid",
        "what only a dead server can have left is repaired, the rest reported in one line",
        ("tests/store/embedded/test_power_cut.py",),
    )
    FULL_KILLED = (
        "full.killed",
        61,
        "disk full, and the gateway, Postgres or both killed meanwhile",
        "nothing lost; the start says that the disk is full and continues when there is room",
        ("tests/store/embedded/test_full_disk.py",),
    )
    ENDLESS = (
        "endless",
        53,
        "model never finishes: words, lines, events, calls, headers, bombs",
        "a failed attempt with its reason; /stop < 1 s, /health < 200 ms, memory back within 10 %",
    )
    BUSY = (
        "busy",
        51,
        "messenger busy or closed for a while: 408, 409, 420, 429, 401, proxies, any wait requested",
        "answers wait, in order, for as long as the channel lives",
        (
            "tests/channels/test_telegram_sending.py::test_what_was_clearly_not_shown_waits",
            "tests/channels/test_slack_sending.py::test_what_lies_not_in_the_message_waits",
            "tests/channels/test_whatsapp_sending.py::test_what_go_says_decides_whether_it_is_sent_again",
        ),
    )
    RECEIPTS = (
        "receipts",
        52,
        "Postgres away or refusing while answers are delivered",
        "each outcome is stored as soon as the database answers, without a restart",
        ("tests/flow/outbound/test_outages.py",),
    )
    BYSTANDERS = (
        "bystanders",
        54,
        "SIGKILL again and again while many wait for a slow model",
        "no message is given up for merely being there",
        ("tests/store/test_probation.py",),
    )
    ZOMBIE = (
        "zombie",
        55,
        "a frozen gateway wakes beside its successor; the database reachable, silent or refusing for it",
        "it does nothing more and exits at once",
        ("tests/background/upkeep/test_health.py",),
    )
    BYSTANDERS_API = "bystanders.api", 54, "the same, /v1", "each request gets its answer, none a failure"
    YEARS = (
        "years",
        62,
        "a start after years: files damaged while it was down, killed while it checks them",
        "ready at once; each file is repaired, nothing lost, nothing twice",
        ("tests/flow/journal/test_start.py",),
    )
    DELETED = (
        "deleted",
        56,
        "files of a running instance deleted, or replaced by folders, pipes, links",
        "restored or reported; everything else continues",
        (
            "tests/background/upkeep/test_restorer.py",
            "tests/config/test_files.py",
            "tests/store/embedded/test_postgres.py::test_a_server_whose_socket_was_deleted_is_started_again",
            "tests/store/embedded/test_postgres.py::test_a_start_finds_a_server_whose_socket_was_deleted",
        ),
    )
    CONFIG_REPLACED = (
        "config.replaced",
        57,
        "config.json replaced by a pipe, a device, 50 MB of blanks, a folder, a loop",
        "the last good one stays, reported once; the event loop does not wait, memory +20 MB at most",
        ("tests/config/test_watch.py",),
    )
    SPARSE = (
        "sparse",
        58,
        "a workspace of sparse files, pipes, 300 levels, 200 hard links",
        "a checkpoint takes what it may, says what it left out and continues next time",
        ("tests/workspace/test_checkpoints.py",),
    )
    DESCRIPTORS = (
        "descriptors",
        59,
        "64 or 128 descriptors, and 300 connections that take them",
        "64: one line with the number needed; 128: works and recovers",
        ("tests/app/test_start.py",),
    )


def elsewhere() -> list[str]:
    """The files outside this folder that the catalogue refers to."""
    return sorted({test.partition("::")[0] for fault in Fault for test in fault.about.elsewhere})


if __name__ == "__main__":
    print(*elsewhere())
