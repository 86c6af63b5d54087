"""What is logged on a message's way says which session it belongs to, and which task."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.domain.channels.channel import SendFailed
from gateway.logs import SecretMask, logging_to
from gateway.store.work import tasks
from tests.flow.outbound.test_sender import sent
from tests.flow.path import MessagePath, in_turn, restarted, said


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    with logging_to(tmp_path / "logs", SecretMask(), io.StringIO()):
        yield tmp_path / "logs"


def named(logs: Path, event: str) -> dict[str, object]:
    (line,) = [
        line for line in map(json.loads, (logs / "gateway.log").read_text().splitlines()) if line["event"] == event
    ]
    return dict(line)


async def test_a_delivery_belongs_to_the_run_whose_message_it_is_even_after_new(path: MessagePath, logs: Path) -> None:
    path.model.answer = in_turn(said("first"))
    asked = await path.tell("go")
    run = await path.claim()
    await path.turns.run(run)
    await path.tell("/new")
    path.channel.faults = [SendFailed("bot was blocked")]

    await sent(path, count=1)

    refused = named(logs, "outbound.refused")
    assert (refused["session_id"], refused["task_id"]) == (str(asked.session_id), str(run.id))


async def test_what_a_crash_left_on_its_way_belongs_to_its_run_too(path: MessagePath, logs: Path) -> None:
    path.model.answer = in_turn(said("hello"))
    asked = await path.tell("go")
    await path.turns.run(await path.claim())
    await path.rows("update outbox set state = 'sending', attempts = 1 returning id")

    again = await restarted(path)
    await again.outbound.adopt("fake", again.channel)

    assert named(logs, "outbound.uncertain")["session_id"] == str(asked.session_id)


async def test_a_commands_failure_is_in_the_log_of_its_session(
    path: MessagePath, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(tasks, "queue", broken)

    accepted = await path.tell("/status")

    assert named(logs, "command.failed")["session_id"] == str(accepted.session_id)
