import json
import tempfile
from pathlib import Path

import pytest

from gateway.cli.storage import eval as evaluation
from gateway.domain.memory import Mode


def test_a_set_is_asked_of_a_database_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [{"speaker": "Ada", "dia_id": f"D1:{n}", "text": f"Small talk number {n}"} for n in range(1, 30)]
    turns.append({"speaker": "Ada", "dia_id": "D1:30", "text": "The piano tuner comes on Friday"})
    asked = [{"question": "When does the piano tuner come?", "category": 2, "evidence": ["D1:30"]}]
    talk = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    file = tmp_path / "set.json"
    file.write_text(json.dumps([{"sample_id": "c", "conversation": talk, "qa": asked}]))
    place = Path(tempfile.mkdtemp(prefix="se"))
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    evaluation.locomo(file, mode=Mode.KEYWORD, as_json=True)

    result = json.loads(capsys.readouterr().out)
    assert (result["turns"], result["questions"], result["embedder"]) == (30, 1, None)
    assert (result["all"]["recall_5"], result["by_category"]["temporal"]["mrr"], result["weak"]) == (1, 1, 0)
    assert list(place.iterdir()) == []
    place.rmdir()
