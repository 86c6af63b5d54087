import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from markupsafe import Markup

from gateway.domain.conversation.model import Usage
from gateway.domain.conversation.tools import Wording
from gateway.domain.conversation.transcript import Attached
from gateway.domain.ids import FileId, MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.flow.live import (
    MessageStored,
    ModelAwaited,
    Overrun,
    SessionReplaced,
    TextDropped,
    TextWritten,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from gateway.store.transcript.messages import MessageRow
from gateway.web.live.entries import quiet, worded
from gateway.web.live.sse import Patch
from gateway.web.live.topics import Thread
from gateway.web.markup.markdown import CAP, Markdown
from gateway.web.pages import Pages

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SESSION, OWNER, TASK = SessionId(uuid4()), PrincipalId(uuid4()), TaskId(uuid4())


def row(id: int, kind: str, text: str, **more: object) -> MessageRow:
    plain = MessageRow(
        id=MessageId(id),
        session_id=SESSION,
        principal_id=OWNER,
        address_id=None,
        seq=id,
        kind=kind,
        text=text,
        label=Label.OWNER,
        origin="web",
        sender="Ada",
        platform_id=None,
        sent_at=NOW,
        solo=False,
        final=True,
        call_id=None,
        tool=None,
        task_id=TASK,
        ordinal=None,
        answered_by=None,
        closed_at=None,
        created_at=NOW,
        tokens=None,
        covers=None,
        remembered=(),
        model=None,
        unasked=None,
        withdrawn=None,
        plan_step=None,
    )
    return replace(plain, **more)


@pytest.fixture
def thread() -> Thread:
    return Thread(Pages(), Markdown(), Markup('<div id="empty"></div>'))


async def drawn(thread: Thread, *rows: MessageRow) -> str:
    await thread.draw(rows)
    [fill, *_] = thread.whole()
    assert fill.what == "fill"
    return fill.html


async def test_people_are_quoted_and_the_agent_is_rendered(thread: Thread):
    html = await drawn(thread, row(1, "user", "<b>*x*</b>"), row(2, "assistant", "*y*"), row(3, "notice", "*z*"))
    assert "&lt;b&gt;*x*&lt;/b&gt;" in html
    assert "<em>y</em>" in html
    assert "<div>*z*</div>" in html


async def test_files_of_both_sides_are_shown_whatever_their_names_are(thread: Thread):
    name = '"><script>\u202egpj.exe'
    sent = Attached(MessageId(1), 0, "waiting", name, "image/png", problem="it has not arrived yet")
    made = Attached(MessageId(2), 0, "stored", "a.pdf", "application/pdf", 5, FileId(uuid4()), "out/a.pdf")
    html = await drawn(
        thread, row(1, "user", "look", attached=(sent,)), row(2, "assistant", "[out/a.pdf]", attached=(made,))
    )
    assert "&#34;&gt;&lt;script&gt; gpj.exe" in html
    assert "\u202e" not in html
    assert "it has not arrived yet" in html
    assert f'href="/chat/files/{made.id}" download' in html
    assert "[out/a.pdf]" not in html


async def test_a_recording_can_be_played_once_it_is_stored(thread: Thread):
    voice = Attached(MessageId(1), 0, "stored", "voice.ogg", "audio/ogg", 5, id=FileId(uuid4()))
    coming = replace(voice, id=None, state="waiting")
    html = await drawn(thread, row(1, "assistant", "Yes.", attached=(voice, coming)))
    assert re.findall("<audio.*?>", html) == [f'<audio controls preload="none" src="/chat/files/{voice.id}/sound">']


async def test_a_summary_can_be_unfolded(thread: Thread):
    assert "<details" in await drawn(thread, row(1, "summary", "We *spoke*."))


async def test_what_waits_and_what_was_stopped_is_marked(thread: Thread):
    html = await drawn(
        thread,
        row(1, "user", "stopped one", closed_at=NOW, platform_id="1"),
        row(4, "user", "meet at 5", withdrawn="edited"),
        row(2, "user", "from elsewhere", origin="telegram"),
        row(3, "user", "unread", seq=None),
        row(5, "user", "meet at 6", origin="revised", closed_at=NOW, platform_id="4"),
    )
    assert "revised" not in html
    assert html.count("<small>stopped</small>") == 1
    assert "<small>stopped</small>" in html
    assert "<small>edited since</small>" in html
    assert "<small>via telegram</small>" in html
    assert html.count("waiting") == 1


async def test_a_call_is_shown_with_its_result_and_its_time(thread: Thread):
    call = row(1, "tool_intent", '{"path": "<a>"}', tool="read_file", ordinal=0)
    later = NOW + timedelta(milliseconds=250)
    good = await drawn(thread, call, row(2, "tool_result", '{"content":"ü"}', ordinal=0, created_at=later))
    refused = row(2, "tool_result", '{"error":"missing","message":"no"}', ordinal=0)
    bad = await drawn(thread, call, refused)
    assert 'data-state="done"' in good
    assert "250 ms" in good
    assert "&lt;a&gt;" in good
    assert "ü" in good
    assert 'data-state="failed"' in bad


@pytest.mark.parametrize(
    ("result", "state", "remark"),
    [
        ('{"exit_code":3,"output":""}', "failed", "exit code 3, 0 ms"),
        ('{"exit_code":0,"output":""}', "done", "0 ms"),
        ('{"waiting_for_approval":"A3","message":"m"}', "asks", "see A3"),
    ],
)
async def test_a_call_that_has_not_run_or_failed_is_not_shown_as_done(result: str, state: str, remark: str):
    thread = Thread(Pages(), Markdown(), Markup(), lambda: {"exec": Wording("Running: {command}", "Ran: {command}")})
    call = row(1, "tool_intent", '{"command":"ls"}', tool="exec", ordinal=0)
    html = await drawn(thread, call, row(2, "tool_result", result, ordinal=0))
    assert f'data-state="{state}"' in html
    assert f'<span class="state">{remark}</span>' in html
    assert ("Asked before running: ls" if state == "asks" else "Ran: ls") in html


async def test_a_call_without_a_result_runs_or_was_interrupted(thread: Thread):
    call = row(1, "tool_intent", "{}", tool="read_file", ordinal=0)
    assert 'data-state="unknown"' in await drawn(thread, call)
    thread.apply(TurnStarted(()))
    assert 'data-state="running"' in await drawn(thread, call)
    assert thread.apply(ToolProgressed(0, "1 of 3 <b>"))
    assert "1 of 3 &lt;b&gt;" in await drawn(thread, call)
    thread.apply(TurnStarted(()))
    assert "1 of 3" not in await drawn(thread, call)


async def test_a_call_is_told_in_words_and_its_json_is_one_click_away():
    wordings = {"write_file": Wording("Writing {path}", "Wrote {path}")}
    thread = Thread(Pages(), Markdown(), Markup(), lambda: wordings)
    call = row(1, "tool_intent", '{"path": "notes/<b>\u202etrip.md", "content": "x"}', tool="write_file", ordinal=0)
    running = await drawn(thread, call)
    done = await drawn(thread, call, row(2, "tool_result", '{"ok": true}', ordinal=0))
    assert "Writing notes/&lt;b&gt; trip.md" in running
    assert "Wrote notes/&lt;b&gt; trip.md" in done
    assert done.index("<summary>") < done.index("Wrote") < done.index("</summary>") < done.index("&#34;content&#34;")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"query": "tea"}', "Searched for “tea”"),
        ('{"query": 7}', "Searched for “7”"),
        ('{"query": ["a"]}', "Searched for"),
        ("{}", "Searched for"),
        ("no json", "Searched for"),
        ("[1]", "Searched for"),
    ],
)
def test_words_are_cut_off_before_an_argument_that_is_missing(arguments: str, words: str):
    assert worded(Wording("Searching for “{query}”", "Searched for “{query}”"), arguments, done=True) == words


def test_of_an_address_the_host_is_shown() -> None:
    said = worded(Wording("Reading {url}", "Read {url}"), '{"url": "https://example.com/a?b"}', done=False)

    assert said == "Reading example.com"


async def test_an_answer_tells_quietly_what_wrote_it_and_what_it_took(thread: Thread):
    html = await drawn(thread, row(1, "assistant", "hi", models=("openai/gpt-5",), usage=Usage(1200, 34, 0, 0.0042)))
    assert "gpt-5 · 1,234 tokens · $0.0042" in html
    assert f'<time datetime="{NOW.isoformat()}">' in html
    assert 'data-copy-text="/chat/messages/1/text"' in html
    assert re.findall(r'href="(/turns/\d+)">Trace', html) == ["/turns/1"]
    assert quiet(row(1, "assistant", "hi", models=("a", "b"), usage=Usage(1, 1, 0, 0.0))) == "a · b · 2 tokens"
    assert quiet(row(1, "assistant", "hi", models=("a",), usage=Usage(1, 1, 0, 0.5))) == "a · 2 tokens · $0.50"


async def test_a_reply_shows_the_command_that_it_replies_to(thread: Thread):
    assert '<code class="command">/ping &lt;b&gt;</code>' in await drawn(
        thread, row(1, "notice", "pong", command="/ping <b>")
    )


async def test_an_error_is_rendered_and_can_be_tried_again(thread: Thread):
    asked = row(1, "user", "hi", answered_by=MessageId(2))
    html = await drawn(thread, asked, row(2, "notice", "**No model** <b>"))
    assert 'role="alert"' in html
    assert "<strong>No model</strong> &lt;b&gt;" in html
    assert 'data-again-message="1"' in html


async def test_words_of_others_are_never_offered_as_the_owners_own(thread: Thread):
    asked = row(1, "user", "forwarded", answered_by=MessageId(2), label=Label.UNTRUSTED)
    assert "data-again-message" not in await drawn(thread, asked, row(2, "notice", "No model"))


async def test_what_is_waited_for_is_told_until_words_come(thread: Thread):
    thread.apply(TurnStarted(()))
    await thread.draw([])
    assert not thread.apply(ModelAwaited("openai/<gpt>", "rate_limit", 20.0))
    [waiting] = await thread.draw(None)
    assert (waiting.what, waiting.where) == ("fill", "live-awaited")
    assert "<code>openai/&lt;gpt&gt;</code> is busy, next try in" in waiting.html
    assert thread.whole()[-1] == waiting
    thread.apply(TextWritten("Hello"))
    assert await thread.draw(None) == [Patch("fill", "live-awaited", ""), Patch("fill", "live-tail", "<p>Hello</p>\n")]
    thread.apply(ModelAwaited("a", "server", 5.0))
    thread.apply(TurnEnded())
    assert not [patch for patch in await thread.draw([]) if patch.where == "live-awaited"]


async def test_a_file_that_a_turn_waits_for_is_named(thread: Thread):
    coming = Attached(MessageId(1), 0, "waiting", "scan.pdf", "application/pdf", problem="it has not arrived yet")
    html = await drawn(thread, row(1, "user", "read this", seq=None, attached=(coming,)))
    assert "Reading scan.pdf…" in html
    assert 'data-say="/stop answer"' in html
    assert "Reading" not in await drawn(thread, row(1, "user", "read this", attached=(coming,)))
    failed = replace(coming, state="failed")
    assert "Reading" not in await drawn(thread, row(1, "user", "read this", seq=None, attached=(failed,)))


async def test_a_result_that_is_no_json_is_shown_as_it_is(thread: Thread):
    call = row(1, "tool_intent", "not json", tool="x", ordinal=0)
    assert "plain text" in await drawn(thread, call, row(2, "tool_result", "plain text", ordinal=0))


async def test_finished_blocks_are_added_once_and_only_the_tail_is_drawn_again(thread: Thread):
    thread.apply(TurnStarted(()))
    first = await thread.draw([row(1, "user", "hi")])
    assert [patch.what for patch in first] == ["insert", "insert", "running"]
    thread.apply(TextWritten("One.\n\nTw"))
    first_block = Patch("append", "live-done", "<p>One.</p>\n")
    assert await thread.draw(None) == [first_block, Patch("fill", "live-tail", "<p>Tw</p>\n")]
    thread.apply(TextWritten("o."))
    assert await thread.draw(None) == [Patch("fill", "live-tail", "<p>Two.</p>\n")]
    assert await thread.draw(None) == []


async def test_a_retry_and_a_tool_call_clear_what_was_written(thread: Thread):
    thread.apply(TurnStarted(()))
    await thread.draw([])
    for event in (TextDropped(), ToolStarted("c", "read_file", "{}")):
        thread.apply(TextWritten("One.\n\nTwo and more"))
        await thread.draw(None)
        thread.apply(event)
        assert await thread.draw(None) == [Patch("fill", "live-done", ""), Patch("fill", "live-tail", "")]


async def test_shorter_words_after_a_retry_replace_the_longer_ones(thread: Thread):
    thread.apply(TurnStarted(()))
    await thread.draw([])
    thread.apply(TextWritten("A long first try.\n\nWith two blocks."))
    await thread.draw(None)
    thread.apply(TextDropped())
    thread.apply(TextWritten("Short."))
    assert await thread.draw(None) == [
        Patch("fill", "live-done", ""),
        Patch("fill", "live-tail", ""),
        Patch("fill", "live-tail", "<p>Short.</p>\n"),
    ]


async def test_other_words_of_the_same_length_after_a_retry_replace_the_first(thread: Thread):
    thread.apply(TurnStarted(()))
    await thread.draw([])
    thread.apply(TextWritten("First.\n\nwords"))
    await thread.draw(None)
    thread.apply(TextDropped())
    thread.apply(TextWritten("Other.\n\nwords and more"))
    patches = await thread.draw(None)
    assert patches[0] == Patch("fill", "live-done", "")
    assert Patch("append", "live-done", "<p>Other.</p>\n") in patches


async def test_the_answer_takes_the_place_of_what_was_being_written(thread: Thread):
    thread.apply(TurnStarted(()))
    await thread.draw([row(1, "user", "hi")])
    thread.apply(TurnEnded())
    patches = await thread.draw([row(1, "user", "hi"), row(2, "assistant", "hello")])
    assert patches[0].what == "replace"
    assert patches[0].where == "live"
    assert patches[-1] == Patch("running", False)


async def test_whoever_comes_late_gets_what_is_written(thread: Thread):
    thread.resume("One.\n\nTwo")
    await thread.draw([])
    assert thread.whole()[1:] == [
        Patch("running", True),
        Patch("fill", "live-done", "<p>One.</p>\n"),
        Patch("fill", "live-tail", "<p>Two</p>\n"),
    ]


async def test_a_block_without_end_is_drawn_ever_more_rarely(thread: Thread):
    thread.apply(TurnStarted(()))
    await thread.draw([])
    thread.apply(TextWritten("```\n"))
    draws = 0
    for _ in range(CAP // 64):
        thread.apply(TextWritten("x" * 63 + "\n"))
        draws += bool(await thread.draw(None))
    assert draws < CAP // 64 / 4


class CountingMarkdown(Markdown):
    """Counts the characters it renders."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0

    def _rendered(self, text: str) -> Markup:
        self.characters += len(text)
        return Markup()


@pytest.mark.parametrize("piece", ["- a\n" * 50, "a" * 200, "```\n" + "x\n" * 100])
async def test_a_growing_block_is_rendered_in_proportion_to_its_length(piece: str):
    markdown = CountingMarkdown()
    thread = Thread(Pages(), markdown, Markup())
    thread.apply(TurnStarted(()))
    await thread.draw(())
    for _ in range(2000):
        thread.apply(TextWritten(piece))
        await thread.draw(None)
    assert markdown.characters < 20 * 2000 * len(piece)


def test_events_say_whether_the_rows_changed(thread: Thread):
    again = [MessageStored(MessageId(1)), ToolEnded("c", "{}", False, 3), SessionReplaced(SESSION), Overrun()]
    assert all(thread.apply(event) for event in again)
    assert not thread.apply(TextWritten("x"))


async def test_the_plan_of_the_running_turn_stands_above_its_answer_and_ticks_off(thread: Thread):
    asked = row(1, "user", "work")
    made = (
        row(2, "tool_intent", "{}", tool="todo", ordinal=0),
        row(3, "tool_result", '{"todo": ["1 [ ] read <b>it</b>", "2 [ ] report"]}', ordinal=0),
    )
    checked = (
        row(4, "tool_intent", "{}", tool="todo", ordinal=1),
        row(5, "tool_result", '{"todo": ["1 [x] read <b>it</b>", "2 [ ] report"]}', ordinal=1),
    )
    thread.apply(TurnStarted(()))
    html = await drawn(thread, asked, *made)
    assert html.index('id="todo"') < html.index('id="live"')
    assert "To do: </span>read &lt;b&gt;it&lt;/b&gt;</li>" in html
    assert "data-done" not in html
    html = await drawn(thread, asked, *made, *checked)
    assert html.count("data-done") == html.count("Done: </span>read") == 1
    thread.apply(TurnEnded())
    assert 'id="todo"' not in await drawn(thread, asked, *made, *checked, row(6, "assistant", "done"))
    thread.apply(TurnStarted(()))
    assert 'id="todo"' not in await drawn(
        thread, asked, *made, *checked, row(6, "assistant", "done"), row(7, "user", "x")
    )


@pytest.mark.parametrize("text", ['{"trivial": true}', '{"error": "no", "message": "x"}', "[]", "x", '{"todo": [1]}'])
async def test_a_call_without_a_plan_shows_none(thread: Thread, text: str):
    thread.apply(TurnStarted(()))
    rows = row(1, "tool_intent", "{}", tool="todo", ordinal=0), row(2, "tool_result", text, ordinal=0)
    assert 'id="todo"' not in await drawn(thread, *rows)


async def test_an_untrusted_answer_says_why_and_where_to_vouch():
    file = Attached(MessageId(1), 0, "stored", "prices q3.csv", "text/csv", path="uploads/prices q3.csv")
    said = row(1, "user", "Sum them up", attached=(file,), label=Label.UNTRUSTED)
    read = row(2, "tool_result", "a page", tool="web_fetch", label=Label.UNTRUSTED)
    thread = Thread(Pages(), Markdown(), Markup())
    await thread.draw([row(0, "assistant", "Hello."), said, read, row(3, "assistant", "42", label=Label.UNTRUSTED)])
    html = thread.whole()[0].html
    assert re.findall(r"<li><bdi>([^<]+)</bdi>", html) == ["prices q3.csv", "web_fetch"]
    assert 'href="/files?path=uploads/prices%20q3.csv">Vouch</a>' in html
    assert html.count("unverified sources") == 1


async def test_the_result_of_a_task_names_it_and_leads_to_it():
    thread = Thread(Pages(), Markdown(), Markup())
    await thread.draw([row(1, "assistant", "B is best.", origin="task", command="Compare <the> offers")])
    assert f'<a href="/tasks/{TASK}" dir="auto">Compare &lt;the&gt; offers</a>' in thread.whole()[0].html
