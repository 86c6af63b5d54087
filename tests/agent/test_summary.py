from dataclasses import replace

import pytest

from gateway.agent.compaction import Cut, cut_of
from gateway.agent.summary import FILES, TITLES, goal, lasting, read, without_model, written
from gateway.domain.conversation.attachments import Attached
from gateway.domain.ids import MessageId
from gateway.domain.text.tokens import estimate
from tests.agent.rows import NOW, Spoken

REPLY = """\
Here is the summary.

## Goal
Find a good tea.

## Decisions:
- Green, not black.
**Facts about people**
Ada lives in Turin.
### Open threads
none
## Files
N/A
## Next steps
- Order it.
## Worth remembering
- Ada likes green tea.
* Ada lives in Turin.
- Ada likes green tea.
- none
The rest is chatter.
"""


def what(spoken: Spoken) -> Cut:
    found = cut_of(Spoken([*spoken.rows]).ask("now", open=True).rows, NOW, 0)
    assert found is not None
    return found


class TestRead:
    def test_a_reply_is_taken_apart_by_its_headings(self) -> None:
        sections = read(REPLY)
        assert sections == {
            "Goal": "Find a good tea.",
            "Decisions": "- Green, not black.",
            "Facts about people": "Ada lives in Turin.",
            "Next steps": "- Order it.",
            "Worth remembering": "- Ada likes green tea.\n* Ada lives in Turin.\n- Ada likes green tea.\n- none\n"
            "The rest is chatter.",
        }
        assert goal(sections) == "Find a good tea."

    @pytest.mark.parametrize(
        "reply",
        [
            "",
            "I cannot help with that.",
            "## Goal\nTea.",
            "## Goal\nnone\n## Decisions\nGreen.\n## Files\na.md",
            "Goal\nTea\nFiles\na.md\nDecisions\nGreen",
            "```json\n{}\n```",
        ],
    )
    def test_anything_else_is_no_summary(self, reply: str) -> None:
        assert read(reply) is None

    def test_a_reply_of_signs_alone_is_read_at_once(self) -> None:
        signs = "-" * 200_000 + "x"
        assert read(f"## Goal\n{signs}\n## Files\n## Decisions") == {"Goal": signs}

    def test_facts_are_told_one_by_one_and_once(self) -> None:
        assert lasting(read(REPLY) or {}) == ("Ada likes green tea.", "Ada lives in Turin.")
        assert lasting({}) == ()

    def test_facts_are_few_and_short(self) -> None:
        facts = lasting({"Worth remembering": "\n".join(f"{n}. {n} {'word ' * 300}" for n in range(1, 50))})
        assert len(facts) == 20
        assert all(estimate(fact) <= 102 for fact in facts)


class TestWritten:
    def test_sections_keep_their_order_and_empty_ones_are_left_out(self) -> None:
        assert written({"Files": "a.md", "Goal": "Tea.", "Decisions": ""}, 200) == "## Goal\nTea.\n\n## Files\na.md"

    @pytest.mark.parametrize("limit", [200, 500, 2000])
    def test_it_is_never_longer_than_allowed(self, limit: int) -> None:
        text = written({title: f"{title} {'word ' * 5000}" for title in TITLES}, limit)
        assert estimate(text) <= limit
        assert text.startswith("## Goal\nGoal word")

    def test_what_was_written_can_be_read_again(self) -> None:
        sections = read(REPLY)
        assert sections is not None
        assert read(written(sections, 2000)) == sections


class TestWithoutModel:
    def test_the_facts_that_need_no_understanding_are_kept(self) -> None:
        spoken = Spoken().ask("find me\n## Goal\na tea").call('{"ok": 1}', path="tea.md").answer("In tea.md.")
        spoken.ask("and cups").call("{}", path="cups.md", content="x").answer("Done.").ask("thanks").answer("Welcome!")
        sections = without_model(what(spoken), 500)
        assert sections["Goal"] == "find me ## Goal a tea"
        assert sections["Open threads"].splitlines() == [
            "- Asked: find me ## Goal a tea",
            "- Asked: and cups",
            "- Asked: thanks",
        ]
        assert sections["Files"] == "- tea.md\n- cups.md"
        assert sections["Next steps"] == "The latest answer in this part began: Done."

    def test_the_summary_before_is_carried_on(self) -> None:
        spoken = Spoken().ask("a").answer("b").summarise(written(read(REPLY) or {}, 2000), 2).ask("c").answer("d")
        sections = without_model(what(spoken), 500)
        assert (sections["Goal"], sections["Decisions"]) == ("Find a good tea.", "- Green, not black.")
        assert "- Ada likes green tea." in sections["Worth remembering"]
        assert sections["Next steps"] == "- Order it."

    def test_it_stays_bounded_however_often_it_is_done(self) -> None:
        spoken = Spoken().ask("start")
        for number in range(40):
            for each in range(4):
                spoken.ask(f"question {number}.{each} " + "word " * 500).call("x" * 9000, path=f"{number}.md")
                spoken.answer("word " * 900)
            last = spoken.rows[-1].seq or 0
            spoken = spoken.summarise(written(without_model(what(spoken), 500), 500), last)
        text = spoken.rows[0].text
        assert estimate(text) <= 500
        assert "## Goal\nstart" in text
        assert "question 39.3" in text

    def test_arguments_that_are_no_object_name_no_file(self) -> None:
        spoken = Spoken().ask("a")
        for arguments in ('["path"]', '{"path": 3}', '{"path": " "}', '{"path": "broken', '{"path":' + "[" * 100_000):
            spoken.call("{}").rows[-2] = Spoken().ask(arguments).rows[0]
        assert without_model(what(spoken.answer("b").ask("c").answer("d")), 500)["Files"] == ""


def test_without_a_model_the_files_people_sent_are_named() -> None:
    spoken = Spoken().ask("look at this").answer("ok")
    sent = Attached(MessageId(1), 0, "stored", "a.pdf", "x/y", path="uploads/d/a.pdf", description="a report")
    lost = Attached(MessageId(1), 1, "failed", "b.pdf", "x/y", problem="gone")
    covered = (replace(spoken.rows[0], attached=(sent, lost)), *spoken.rows[1:])
    assert without_model(Cut(None, covered), 2_000)[FILES] == "- uploads/d/a.pdf: a.pdf; a report"
