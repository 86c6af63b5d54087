from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gateway.agent.loop import NO_ANSWER
from gateway.agent.work.heartbeat import (
    Occasion,
    heartbeat_prompt,
    heartbeat_status,
    instructs,
    news_in,
    outcome_of,
    unreadable,
)
from gateway.domain.health import HeartbeatOutcome
from gateway.domain.principals import Label
from gateway.store.work.heartbeats import MAX_CONCERNS, Concern, ConcernKind, Pulse
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import Persona

NOW = datetime(2026, 11, 21, 13, 30, 7, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
HALF_HOUR = timedelta(minutes=30)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t\n",
        "# Heartbeat\n\n## Daily\n",
        "<!-- - look at the mail -->",
        "<!--\n- look\n\n- look again\n-->\n# Title\n---\n- \n",
        "<!-- never closed\n- look",
        "#\n",
    ],
)
def test_comments_headings_and_blanks_are_no_instructions(text: str) -> None:
    assert not instructs(text)


@pytest.mark.parametrize(
    "text",
    [
        "- look at the mail",
        "<!-- a --> look <!-- b -->",
        "# Daily\nlook",
        "#\nlook",
        "##\n- look",
        "#daily",
        "今日の予定",
        "<!-- a --> b -->",
    ],
)
def test_anything_else_is(text: str) -> None:
    assert instructs(text)


def test_the_template_holds_none() -> None:
    template = Path(__file__).parents[3] / "workspace_template" / "HEARTBEAT.md"

    assert not instructs(template.read_text(encoding="utf-8"))


def test_a_file_that_cannot_be_read_holds_none(tmp_path: Path) -> None:
    (tmp_path / "HEARTBEAT.md").mkdir()
    text = Persona(Workspace(tmp_path)).load().heartbeat.text

    assert not instructs(text)
    assert unreadable(text) == text[1:-1]
    assert text[1:-1].startswith("HEARTBEAT.md could not be read: ")
    assert unreadable("[HEARTBEAT.md could not be read: it is here]\n- look") is None


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        ("heartbeat ok", HeartbeatOutcome.OK),
        ("  Heartbeat   OK!\n", HeartbeatOutcome.OK),
        ("`heartbeat ok`", HeartbeatOutcome.OK),
        ("HEARTBEAT_OK", HeartbeatOutcome.OK),
        ("heartbeat: ok", HeartbeatOutcome.OK),
        ("**Heartbeat ok.** ✅️", HeartbeatOutcome.OK),
        ("<b>Heartbeat</b>: O.K.", HeartbeatOutcome.OK),
        ("```text\nheartbeat ok\n```", HeartbeatOutcome.OK),
        ("<think>nothing</think>heartbeat ok", HeartbeatOutcome.OK),
        ("so nothing.\n</think>\n\nheartbeat-ok", HeartbeatOutcome.OK),
        ("[2026-11-26 20:56 UTC] heartbeat ok", HeartbeatOutcome.OK),
        ("[Thu 2026-11-26 12:56 UTC-8 Ada] HEARTBEAT OK", HeartbeatOutcome.OK),
        ("[Thu 26 Nov 2026 20:56 Europe/Berlin] heartbeat ok", HeartbeatOutcome.OK),
        ("[Recalled from memory]\n> a fact\n\nHEARTBEAT\\_OK", HeartbeatOutcome.OK),
        ("heartbeat&nbsp;okay <!-- nothing -->", HeartbeatOutcome.OK),
        ("ｈｅａｒｔｂｅａｔ ｏｋ", HeartbeatOutcome.OK),
        ("heartbeat ok<|end|>", HeartbeatOutcome.OK),
        *((f"heartbeat ok{sign}", HeartbeatOutcome.TOLD) for sign in ("?", " ？", " ❌", " ⚠️", " 🔥")),
        ("[the report is due] heartbeat ok", HeartbeatOutcome.TOLD),
        ("[backup of 2026-11-26 failed] heartbeat ok", HeartbeatOutcome.TOLD),
        ("heartbeat ok\n\nNothing new.", HeartbeatOutcome.TOLD),
        ("The report is due. heartbeat ok", HeartbeatOutcome.TOLD),
        ("heartbeat not ok", HeartbeatOutcome.TOLD),
        ("heartbeat ok: nothing is due", HeartbeatOutcome.TOLD),
        ("ok", HeartbeatOutcome.TOLD),
        ("The heartbeat is ok", HeartbeatOutcome.TOLD),
        (NO_ANSWER, HeartbeatOutcome.FAILED),
    ],
)
def test_only_the_exact_words_mean_silence(answer: str, meaning: HeartbeatOutcome) -> None:
    assert outcome_of(answer) is meaning


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("The report is due. heartbeat ok", "The report is due."),
        ("The report is due:\n- Monday\n\n**HEARTBEAT_OK**\n", "The report is due:\n- Monday"),
        ("The report is due.\n\n[2026-11-26 20:56 UTC] heartbeat ok", "The report is due."),
        ("The report is due!\n<b>heartbeat ok</b>", "The report is due!"),
        ("The report is due. (heartbeat ok)", "The report is due."),
        ("It says:\n```\nfull\n```\nheartbeat ok", "It says:\n```\nfull\n```"),
        ("heartbeat ok\n\nNothing new.", "heartbeat ok\n\nNothing new."),
        ("The log says: heartbeat ok", "The log says: heartbeat ok"),
        ("The log says:\n```\nheartbeat ok\n```", "The log says:\n```\nheartbeat ok\n```"),
        ("I saw that the server's heartbeat ok", "I saw that the server's heartbeat ok"),
        ("\n" * 100_000 + "x", "\n" * 100_000 + "x"),
    ],
)
def test_news_are_sent_without_the_phrase_at_their_end(answer: str, sent: str) -> None:
    assert news_in(answer) == sent


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("overdue", '- The schedule "x y" was due on Sat 21 Nov 2026 14:30 Europe/Berlin and has not run.'),
        ("failed", '- "x y" failed on Sat 21 Nov 2026 14:30 Europe/Berlin.'),
        ("undelivered", "- Something you said on x y on Sat 21 Nov 2026 14:30 Europe/Berlin could not be delivered."),
        ("doubtful", "- Something you said on x y on Sat 21 Nov 2026 14:30 Europe/Berlin may not have been delivered."),
        ("unanswered", "- A message on x y of Sat 21 Nov 2026 14:30 Europe/Berlin has no answer yet."),
    ],
)
def test_each_thing_that_was_noticed_has_one_line_whatever_it_is_called(kind: ConcernKind, line: str) -> None:
    asked = heartbeat_prompt([Concern(kind, "x\n`y`", NOW, Label.OWNER)], NOW, "Europe/Berlin", "Ada")

    assert asked.split("\n")[1:-1] == ["Since the last one the gateway noticed:", line]


def test_where_not_everything_is_listed_it_is_said() -> None:
    concerns = [Concern("failed", "x", NOW, Label.OWNER)] * MAX_CONCERNS

    assert "There may be more" in heartbeat_prompt(concerns, NOW, "UTC", "Ada")
    assert "There may be more" not in heartbeat_prompt(concerns[1:], NOW, "UTC", "Ada")


def test_with_nothing_noticed_only_the_file_counts() -> None:
    assert heartbeat_prompt([], NOW, "UTC", "Ada") == (
        "This is a heartbeat: nobody wrote to you. It is Sat 21 Nov 2026 13:30 UTC.\n"
        "Do what HEARTBEAT.md asks for and look after what was noticed. Your answer is sent to Ada as it is, so write "
        "only what is worth their attention now. If nothing is, answer exactly this, untranslated: heartbeat ok"
    )


def test_an_occasion_is_trusted_as_the_least_trusted_thing_in_it() -> None:
    concerns = tuple(Concern("failed", "x", NOW, label) for label in (Label.OWNER, Label.UNTRUSTED, Label.KNOWN))
    occasion = Occasion(at=NOW, concerns=concerns)

    assert (Occasion(at=NOW).label, occasion.label) == (Label.OWNER, Label.UNTRUSTED)
    assert Occasion.model_validate(occasion.model_dump(mode="json")) == occasion


class TestStanding:
    def shown(self, pulse: Pulse) -> str:
        return heartbeat_status(pulse, HALF_HOUR, NOW + HALF_HOUR, None, NOW, BERLIN)

    @pytest.mark.parametrize(
        ("outcome", "text", "words"),
        [
            (HeartbeatOutcome.IDLE, "nothing to do", "last 14:30 idle (nothing to do), "),
            (HeartbeatOutcome.SKIPPED, "no model is connected", "last 14:30 skipped (no model is connected), "),
            (HeartbeatOutcome.FAILED, "it was cancelled", "last 14:30 failed (it was cancelled), "),
            (HeartbeatOutcome.OK, "", "last 14:30 ok, "),
            (HeartbeatOutcome.TOLD, "the rent is due", "last 14:30 told, "),
            (HeartbeatOutcome.RUNNING, "", "last 14:30 is running, "),
            (HeartbeatOutcome.WAITING, "", ""),
        ],
    )
    def test_it_tells_how_the_last_one_went_and_when_the_next_one_is(
        self, outcome: HeartbeatOutcome, text: str, words: str
    ) -> None:
        pulse = Pulse(at=NOW, looked=NOW, outcome=outcome, text=text, day=NOW.date(), beats=48, asked=1)

        assert self.shown(pulse) == f"every 30m, {words}next 15:00; 48 beats today, 1 asked a model"

    def test_what_was_counted_yesterday_is_over_and_other_days_are_named(self) -> None:
        long_ago = NOW - timedelta(days=2)
        pulse = Pulse(at=long_ago, looked=long_ago, outcome=HeartbeatOutcome.OK, day=long_ago.date(), beats=9, asked=9)

        assert self.shown(pulse) == "every 30m, last Thu 14:30 ok, next 15:00; 0 beats today, 0 asked a model"

    def test_off_and_stopped_say_so(self) -> None:
        pulse = Pulse(at=NOW, looked=NOW)

        assert heartbeat_status(pulse, None, None, None, NOW, BERLIN) == "off"
        assert heartbeat_status(pulse, HALF_HOUR, None, "a key was refused", NOW, None) == "stopped: a key was refused"
