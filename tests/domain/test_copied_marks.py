import pytest

from gateway.domain.text.marks import CopiedMarks, without_copied_marks


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[2026-11-22 10:00 UTC Ada] Hello there", "Hello there"),
        ("[Sun 2026-11-22 10:00 CET] Hello there", "Hello there"),
        ("ok\n\n[2026-11-22 10:00 UTC Bob]\nfine", "ok\n\nfine"),
        ("[Forwarded from Bob]\n> hi\n\nDone", "> hi\n\nDone"),
        ("[file a.pdf: application/pdf; id 3]\nRead it.", "Read it."),
        ("[Recalled from memory, data]\n> x\n> y\n\nSo: yes", "\nSo: yes"),
        ("[[reply_to_current]] hi", "hi"),
        ("NO_REPLY", ""),
        ("**HEARTBEAT_OK**", ""),
        *(
            (text, text)
            for text in ("NO", "NO_REPLY is a word", "[link](http://x) and [1]", "[2026-11-22 10:00:01] log")
        ),
        *(
            (text, text)
            for text in ("The form is `[2026-11-22 10:00 UTC Ada]`.", "```\n[2026-11-22 10:00 UTC A] x\n```")
        ),
    ],
)
def test_copied_marks_never_reach_a_person_and_code_keeps_them(text: str, kept: str) -> None:
    assert without_copied_marks(text, silence=True) == kept
    growing = CopiedMarks(silence=True)
    assert "".join(map(growing.add, text)) + growing.end() == kept


def test_a_program_gets_the_words_by_which_it_means_silence() -> None:
    assert without_copied_marks("NO_REPLY") == "NO_REPLY"
