import json

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.memory import datasets
from gateway.memory.metrics import mean, measure

SESSIONS = {f"t{n}": f"s{n // 4}" for n in range(40)}


def test_the_figures_of_one_question() -> None:
    ranked = ["t0", "t9", "t1", "t30", "t31", "t32", "t4"]

    found = measure(ranked, {"t9", "t4", "t39"}, SESSIONS)

    assert (found.recall_5, found.recall_10, found.hit, found.mrr) == (1 / 3, 2 / 3, 1, 1 / 2)
    assert found.session_recall == pytest.approx(2 / 3)
    assert 0.4 < found.ndcg < 0.5
    assert mean([found, measure([], {"t1"}, SESSIONS)]).recall_10 == pytest.approx(1 / 3)


def test_a_locomo_file() -> None:
    turn = {"speaker": "Ada", "dia_id": "D1:1", "text": "I moved to Turin", "blip_caption": "a flat"}
    questions = [
        {"question": "Where does Ada live?", "category": 4, "evidence": ["D1:01; D1:7"]},
        {"question": "What of Bo?", "category": 1, "evidence": ["D9:9"]},
    ]
    talk = {"session_1": [turn], "session_1_date_time": "1:56 pm on 8 May, 2023", "speaker_a": "Ada"}
    content = json.dumps([{"sample_id": "c", "conversation": talk, "qa": questions}]).encode()

    (conversation,) = datasets.locomo(content)

    assert conversation.turns[0].text == "Ada: I moved to Turin [shared a flat]"
    assert conversation.turns[0].at.isoformat() == "2023-05-08T13:56:00+00:00"
    assert [(q.category, q.evidence) for q in conversation.questions] == [("single-hop", {"D1:1"})]


def test_a_longmemeval_file_without_its_abstentions() -> None:
    said = [{"role": "user", "content": "My dog is Rex", "has_answer": True}, {"role": "assistant", "content": "Nice"}]
    one = {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "How is my dog called?",
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_session_ids": ["a"],
        "haystack_sessions": [said],
        "answer_session_ids": ["a"],
    }
    silent = one | {"question_id": "q2_abs", "haystack_sessions": [said[1:]]}

    (conversation,) = datasets.longmemeval(json.dumps([one, silent]).encode())

    (question,) = conversation.questions
    assert (question.category, question.evidence) == ("single-session-user", {conversation.turns[0].id})


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'[{"a": 1}]', b"\xff"])
def test_another_file_is_refused_in_one_line(content: bytes) -> None:
    for read in (datasets.locomo, datasets.longmemeval):
        with pytest.raises(OwnerMustAct, match=r"^This is not a Lo\w+ file: [^\n]+$"):
            read(content)
