import json

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.memory import evaluation
from gateway.memory.evaluation import Junk, judge_fact, mean_figures, measure_ranking
from gateway.memory.lexemes import lexemes

SESSIONS = {f"t{n}": f"s{n // 4}" for n in range(40)}


def test_the_figures_of_one_question() -> None:
    ranked = ["t0", "t9", "t1", "t30", "t31", "t32", "t4"]

    found = measure_ranking(ranked, {"t9", "t4", "t39"}, SESSIONS)

    assert (found.recall_5, found.recall_10, found.hit, found.mrr) == (1 / 3, 2 / 3, 1, 1 / 2)
    assert found.session_recall == pytest.approx(2 / 3)
    assert 0.4 < found.ndcg < 0.5
    assert mean_figures([found, measure_ranking([], {"t1"}, SESSIONS)]).recall_10 == pytest.approx(1 / 3)


def test_a_locomo_file() -> None:
    turn = {"speaker": "Ada", "dia_id": "D1:1", "text": "I moved to Turin", "blip_caption": "a flat"}
    questions = [
        {"question": "Where does Ada live?", "category": 4, "evidence": ["D1:01; D1:7"]},
        {"question": "What of Bo?", "category": 1, "evidence": ["D9:9"]},
    ]
    talk = {"session_1": [turn], "session_1_date_time": "1:56 pm on 8 May, 2023", "speaker_a": "Ada"}
    content = json.dumps([{"sample_id": "c", "conversation": talk, "qa": questions}]).encode()

    (conversation,) = evaluation.locomo(content)

    assert conversation.turns[0].text == "Ada: I moved to Turin [shared a flat]"
    assert conversation.turns[0].at.isoformat() == "2023-05-08T13:56:00+00:00"
    assert [(q.category, q.evidence) for q in conversation.questions] == [("single-hop", {"D1:1"})]


def _instance(id: str, type: str, *, named: bool = True) -> dict[str, object]:
    """As LongMemEval publishes them: the sessions are not in order of time, most turns say nothing of an answer."""
    evidence = [
        {"role": "user", "content": "My dog is Rex", "has_answer": named},
        {"role": "assistant", "content": "", "has_answer": False},
    ]
    return {
        "question_id": id,
        "question_type": type,
        "question": "How is my dog called?",
        "answer": 3,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/04/20 (Thu) 02:21", "2023/05/20 (Sat) 02:21"],
        "haystack_session_ids": ["answer_4be1b6b4_1", "sharegpt_yywfIrx_0", "ultrachat_403752"],
        "haystack_sessions": [evidence, [{"role": "user", "content": "Hi\0"}], [{"role": "user", "content": "Hi"}]],
        "answer_session_ids": ["answer_4be1b6b4_1"],
    }


LONGMEMEVAL_TYPES = [
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "temporal-reasoning",
    "knowledge-update",
]


def test_a_longmemeval_file() -> None:
    told = [_instance(f"q{n}", type) for n, type in enumerate(LONGMEMEVAL_TYPES)]
    absent = [_instance(f"q{n}_abs", type) for n, type in enumerate(LONGMEMEVAL_TYPES)]
    unnamed = _instance("q9", "multi-session", named=False)

    found = evaluation.longmemeval(json.dumps([*told, *absent, unnamed]).encode())

    assert [each.name for each in found] == [each["question_id"] for each in [*told, *absent]]
    assert [each.questions[0].category for each in found] == LONGMEMEVAL_TYPES * 2
    for conversation, answered in zip(found, [True] * 6 + [False] * 6, strict=True):
        (question,) = conversation.questions
        assert [turn.text for turn in conversation.turns] == ["Hi", "My dog is Rex", "", "Hi"]
        assert len({turn.at for turn in conversation.turns}) == 4
        assert question.evidence == ({conversation.turns[1].id} if answered else frozenset())


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'[{"a": 1}]', b"\xff"])
def test_another_file_is_refused_in_one_line(content: bytes) -> None:
    for read in (evaluation.locomo, evaluation.longmemeval):
        with pytest.raises(OwnerMustAct, match=r"^This is not a Lo\w+ file: [^\n]+$"):
            read(content)


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        ("Ada moved to Turin", None),
        ("Ada moved to Turin, 12 Via Po", None),
        ("Thanks Ada", Junk.SMALL_TALK),
        ("Does Ada like Turin?", Junk.SMALL_TALK),
        ("Ada plays the piano", Junk.REPEATED),
        ("Turin has good trams and museums", Junk.OF_AGENT),
        ("Bruno breeds alpacas near Lima", Junk.UNSAID),
    ],
)
def test_why_nobody_would_miss_a_fact(fact: str, why: Junk | None) -> None:
    person, agent = (frozenset(lexemes(text)) for text in ("I, Ada, moved to Turin", "Turin has good trams, museums"))
    assert judge_fact(fact, ["Ada plays the piano."], person, agent) is why
