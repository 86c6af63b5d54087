import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gateway.cli.storage import eval as evaluation
from gateway.domain.memory.memories import SearchMode
from tests.fakes.openai_server import FakeModels, Rule
from tests.journeys.process import configured


@pytest.mark.thorough
@pytest.mark.parametrize("chats", [False, True])
def test_a_set_is_asked_of_a_database_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], chats: bool
) -> None:
    turns = [{"speaker": "Ada", "dia_id": f"D1:{n}", "text": f"Small talk number {n}"} for n in range(1, 30)]
    turns.append({"speaker": "Ada", "dia_id": "D1:30", "text": "The piano tuner comes on Friday"})
    asked = [{"question": "When does the piano tuner come?", "category": 2, "evidence": ["D1:30"]}]
    talk = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    file = tmp_path / "set.json"
    file.write_text(json.dumps([{"sample_id": "c", "conversation": talk, "qa": asked}]))
    place = Path(tempfile.mkdtemp(prefix="se"))
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    evaluation.locomo(file, mode=SearchMode.KEYWORD, chats=chats, as_json=True)

    result = json.loads(capsys.readouterr().out)
    assert (result["turns"], result["questions"], result["embedder"]) == (30, 1, None)
    assert (result["all"]["recall_5"], result["by_category"]["temporal"]["mrr"], result["weak"]) == (1, 1, 0)
    assert not chats or (result["rows"], result["own"]) == (1, 0)
    assert list(place.iterdir()) == []
    place.rmdir()


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "when"), [(signal.SIGHUP, "PG_VERSION"), (signal.SIGTERM, "postmaster.pid")])
def test_a_signal_leaves_neither_a_server_nor_its_folder(tmp_path: Path, number: signal.Signals, when: str) -> None:
    talk = {"session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "The piano tuner comes on Friday"}]}
    asked = [{"question": "Who comes?", "category": 2, "evidence": ["D1:1"]}] * 20_000
    file, place = tmp_path / "set.json", Path(tempfile.mkdtemp(prefix="se"))
    file.write_text(json.dumps([{"sample_id": "c", "conversation": talk, "qa": asked}]))
    command = [sys.executable, "-m", "gateway", "eval", "locomo", str(file), "--mode", "keyword"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(place)}, stderr=subprocess.PIPE) as process:
        while not list(place.glob(f"*/postgres/{when}")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        pids = place.glob("*/postgres/postmaster.pid")
        servers = [int(text.split()[0]) for pid in pids if (text := pid.read_text())]
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert b"defect" not in told
    assert list(place.iterdir()) == []
    while [pid for pid in servers if Path(f"/proc/{pid}").exists()]:  # it has said goodbye, and is about to end
        time.sleep(0.01)
    place.rmdir()


def test_questions_without_an_answer_have_a_line_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [{"role": "user", "content": f"Small talk number {n}"} for n in range(20)]
    said.append({"role": "user", "content": "The piano tuner comes on Friday", "has_answer": True})
    history = {
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_session_ids": ["a"],
        "haystack_sessions": [said],
        "question_type": "knowledge-update",
    }
    asked = [
        history | {"question_id": "q1", "question": "When does the piano tuner come?"},
        history | {"question_id": "q2_abs", "question": "Which lighthouse did Xaver paint?"},
    ]
    file = tmp_path / "set.json"
    file.write_text(json.dumps(asked))

    evaluation.longmemeval(file, mode=SearchMode.KEYWORD)

    table = capsys.readouterr().out
    assert "knowledge-update              1  1.000" in table
    assert "weak: 0.000 of the questions, 1.000 of 1 that have no answer" in table


SUMMARY = """## Goal
Talk.
## Decisions
none
## Facts about people
none
## Worth remembering
- The piano tuner comes on Friday
- The piano tuner comes on Friday.
- Bruno breeds alpacas near Lima
"""


@pytest.mark.thorough
async def test_the_configured_model_learns_facts_of_which_those_that_nobody_would_miss_are_counted(
    tmp_path: Path,
) -> None:
    talk = {"session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "The piano tuner comes on Friday"}]}
    file = tmp_path / "set.json"
    file.write_text(json.dumps([{"sample_id": "c", "conversation": talk, "qa": []}]))
    async with FakeModels(Rule("Write the summary", text=SUMMARY)) as models:
        (tmp_path / "config.json").write_text(json.dumps(configured(models=models)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "eval", "junk", str(file), "--json"),
            env={
                **os.environ,
                "SUPACLAW_DATA": str(tmp_path / "data"),
                "SUPACLAW_CONFIG": str(tmp_path / "config.json"),
            },
            stdout=subprocess.PIPE,
        )
        told, _ = await asyncio.wait_for(process.communicate(), 120)
    found = json.loads(told)
    assert (found["sessions"], found["facts"], found["rate"]) == (1, 3, pytest.approx(2 / 3))
    assert found["junk"] == {"said before": 1, "never said": 1}
