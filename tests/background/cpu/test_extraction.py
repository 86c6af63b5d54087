"""What is read out of a file, and what becomes of one that nobody can read."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.agent.limits import Limits
from gateway.background.cpu import extraction
from gateway.background.cpu.executor import MAX_MEMORY_BYTES, Cpu, CpuJobFailed
from gateway.domain.conversation.inbound import Attachment
from gateway.domain.conversation.model import Image, Prompt, Reply, ToolMessage, Usage, UserMessage
from gateway.domain.errors import SupaclawError
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.llm.errors import ErrorKind, ModelError
from gateway.store.connection.pool import Database
from gateway.store.files.files import NO_TRANSCRIPTION
from gateway.store.work import tasks
from tests.background.reads import Reads, derived
from tests.flow.path import MEMBER, OWNER, FakeModel, MessagePath, build, call, in_turn, results, said
from tests.ingest.samples import pdf

FOUND = "select text_path, view_path, pages, mime, description, problem from files"
Ask = Callable[..., Awaitable[MessagePath]]


@pytest.fixture
def ask(database: Database, workspace: Path, model: FakeModel) -> Ask:
    """Sends a file with a question, and comes back when that is answered."""

    async def ask(cpu: Cpu, data: bytes = b"x", name: str = "a.pdf", patience: float = 15, **more: Any) -> MessagePath:
        path = await build(database, workspace, model, cpu=cpu, **more)
        path.channel.files["f1"] = data
        async with path.working(), asyncio.timeout(patience):
            await path.answers.wait(await path.tell("read it", attachments=(Attachment("f1", name),)))
        return path

    return ask


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


def shown(prompt: Prompt) -> UserMessage:
    return next(m for m in prompt.messages if isinstance(m, UserMessage))


async def test_a_pdf_is_read_page_by_page_in_a_process_of_its_own(ask: Ask, model: FakeModel) -> None:
    cpu = Cpu()
    try:
        path = await ask(cpu, pdf("The rent is 700 euros.", "It is due in May."), patience=120)
    finally:
        await cpu.close()
    [(text, view, pages, mime, _, problem)] = await path.rows(FOUND)
    assert (pages, mime, problem) == (2, "application/pdf", "")
    [(where,)] = await path.rows("select path from files")
    assert (text, view) == (f"{where}.txt", "")
    assert "700 euros" in (path.workspace / text).read_text()
    assert "due in May" in (path.workspace / f"{where}.pages/002.txt").read_text()
    assert (path.workspace / f"{where}.pages/001.jpg").read_bytes().startswith(b"\xff\xd8")
    assert "700 euros" in shown(model.prompts[0]).text
    assert list((path.workspace.parent / "ingest").iterdir()) == []


async def test_a_picture_is_shown_once_to_the_turn_that_answers_it(ask: Ask, model: FakeModel) -> None:
    path = await ask(
        Reads(derived("image", "image/png", pages=1, view="view.jpg"), {"view.jpg": b"seen"}), b"", "a.png"
    )
    async with path.working():
        await path.ask("and now?")
    [image] = shown(model.prompts[0]).images
    assert (image.mime, image.data) == ("image/jpeg", b"seen")
    assert [m.images for m in model.prompts[1].messages if isinstance(m, UserMessage)] == [(), ()]


async def test_the_agent_looks_at_a_page_until_it_has_answered(ask: Ask, model: FakeModel) -> None:
    files = {"text.txt": b"one two", "001.txt": b"one", "001.jpg": b"\xff1", "002.txt": b"two", "002.jpg": b"\xff2"}
    path = await ask(Reads(derived(pages=2, text="text.txt"), files))
    [(file,)] = await path.rows("select path from files")
    async with path.working():
        model.answer = in_turn(said("", call("read_file", path=file, page=2)), said("seen"), said("a page"))
        await path.ask("what is on page 2?")
        await path.ask("and now?")
    seen, later = ([m for m in prompt.messages if isinstance(m, ToolMessage)] for prompt in model.prompts[-2:])
    assert [message.images for message in seen] == [(Image("image/jpeg", b"\xff2"),)]
    assert '"content":"two"' in seen[0].text
    assert [message.images for message in later] == [()]
    assert await path.rows("select distinct label from messages where kind = 'tool_result'") == [(Label.UNTRUSTED,)]


async def test_the_agent_reads_files_that_nobody_has_sent_as_they_are_now(
    database: Database, workspace: Path, model: FakeModel
) -> None:
    made = {"text.txt": b"one two", "001.txt": b"one", "001.jpg": b"\xff1", "002.txt": b"two"}
    cpu = Reads(derived(pages=2, text="text.txt"), made)
    path = await build(database, workspace, model, cpu=cpu)
    (file := workspace / "notes/a.pdf").parent.mkdir()
    file.write_bytes(b"%PDF\xff\0")
    async with path.working():
        read = call("read_file", path="notes/a.pdf")
        page = call("read_file", path="notes/a.pdf", page=1)
        model.answer = in_turn(said("", read), said("", read), said("", page), said("read"))
        await path.ask("what does it say?")
        first, _, shown = results(model.prompts[-1])
        file.write_bytes(b"%PDF\xff\0, the second edition")
        cpu.files = {"text.txt": b"three"}
        model.answer = in_turn(said("", read), said("read"))
        await path.ask("and now?")
    assert (first["content"], shown["content"]) == ("one two", "one")
    assert results(model.prompts[-1])[-1]["content"] == "three"
    assert len(cpu.asked) == 2
    assert [each.name for each in file.parent.iterdir()] == ["a.pdf"]
    read_out = {each.name for each in (workspace / "uploads/read").rglob("*.*")}
    assert read_out == {"a.pdf.txt", "a.pdf.pages", "001.txt", "001.jpg", "002.txt"}
    labels = await path.rows("select label from messages where kind = 'tool_result' order by id")
    assert labels[:3] == [(Label.OWNER,), (Label.OWNER,), (Label.UNTRUSTED,)]
    assert await path.rows("select kind from tasks where kind = 'describe'") == []


async def test_what_was_read_lies_where_the_path_of_the_file_says(ask: Ask) -> None:
    files = {
        "text.txt": b"whole",
        "view.jpg": b"seen",
        "001.txt": b"one",
        "001.jpg": b"1",
        "002.txt": b"two",
        "evil.sh": b"rm",
        "003.txt": b"beyond",
    }
    path = await ask(Reads(derived(pages=2, text="text.txt", view="view.jpg"), files))
    [day] = (path.workspace / "uploads").iterdir()
    there = sorted(str(file.relative_to(day)) for file in day.rglob("*") if file.is_file())
    assert there == [
        "a.pdf",
        *(f"a.pdf.pages/{name}" for name in ("001.jpg", "001.txt", "002.txt", "view.jpg")),
        "a.pdf.txt",
    ]


async def test_the_process_is_given_a_copy_and_a_folder_outside_of_the_workspace(ask: Ask) -> None:
    cpu = Reads(derived(problem="empty"))
    path = await ask(cpu, name="../a b.pdf")
    [(source, target, name, _)] = cpu.asked
    for given in (source, target):
        assert Path(str(given)).is_relative_to(path.workspace.parent / "ingest")
    assert name == "a b.pdf"


async def test_what_could_not_be_read_is_logged_with_the_reason(ask: Ask) -> None:
    with capture_logs() as logs:
        await ask(Reads(derived(pages=1, problem="text recognition failed: RuntimeError: the model is damaged")))
    [log] = [log for log in logs if log["event"] == "file.not_all_read"]
    assert log["problem"] == "text recognition failed: RuntimeError: the model is damaged"


async def test_what_the_process_leaves_as_a_link_is_not_followed(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")

    class Links(Reads):
        async def run(self, function: Callable[..., Json], *arguments: Json, seconds: float, memory: int = 0) -> Json:
            os.symlink(tmp_path / "secret", Path(str(arguments[1])) / "text.txt")
            return await super().run(function, *arguments, seconds=seconds, memory=MAX_MEMORY_BYTES)

    path = await ask(Links(derived(text="text.txt")))
    [(text, *_, problem)] = await path.rows(FOUND)
    assert text == ""
    assert problem.startswith("it could not be read")
    assert not list((path.workspace / "uploads").rglob("*.txt"))


async def test_a_file_that_breaks_the_process_fails_alone_and_the_turn_says_so(ask: Ask, model: FakeModel) -> None:
    path = await ask(Reads(CpuJobFailed("read failed: the process was ended by signal 9")))
    [(*_, problem)] = await path.rows(FOUND)
    assert problem == "it could not be read: read failed: the process was ended by signal 9"
    assert f"; {problem}]" in shown(model.prompts[0]).text


@pytest.mark.thorough
async def test_a_process_that_dies_over_a_file_takes_nothing_with_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ingest.reading.read", die)
    cpu = Cpu()
    try:
        path = await ask(cpu, patience=120)
        [(*_, problem)] = await path.rows(FOUND)
        assert "signal 9" in problem
        async with path.working():
            assert await path.ask("still there?") == "re: still there?"
    finally:
        await cpu.close()


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def test_a_file_that_is_gone_is_told_as_gone(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        raise extraction.WorkspaceError("not_found", "uploads/a.pdf does not exist")

    monkeypatch.setattr(extraction.Workspace, "copy", nothing)
    path = await ask(Reads(derived()))
    [(*_, problem)] = await path.rows(FOUND)
    assert problem == "it could not be read: uploads/a.pdf does not exist"


async def test_what_a_crash_left_of_earlier_readings_is_cleared_away(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "ingest" / "old").mkdir(parents=True)
    await ask(Reads(derived()))
    assert list((tmp_path / "ingest").iterdir()) == []


def heard_as(text: str) -> Reply:
    return Reply(text, (), Usage(cost_usd=0.5), "x/whisper", 1)


class TestRecordings:
    VOICE = derived("audio", "audio/ogg", description="a voice message", problem="not written down")

    async def test_the_words_are_its_text_and_its_name_fits_its_bytes(self, ask: Ask, model: FakeModel) -> None:
        heard: list[tuple[str, str, bytes]] = []

        async def hear(name: str, mime: str, audio: bytes) -> Reply:
            heard.append((name, mime, audio))
            return heard_as(" Buy green tea. ")

        path = await ask(Reads(self.VOICE), b"sound", "PTT-1.opus", hear=hear)
        assert heard == [("recording.ogg", "audio/ogg", b"sound")]
        [(text, *_, problem)] = await path.rows(FOUND)
        assert ((path.workspace / text).read_text(), problem) == ("Buy green tea.", "")
        assert "Buy green tea." in shown(model.prompts[0]).text
        called = (
            "select t.kind, s.cost_usd from task_steps s join tasks t on t.id = s.task_id where s.name = 'x/whisper'"
        )
        assert await path.rows(called) == [("ingest", pytest.approx(0.5))]

    async def test_with_the_budget_used_up_no_service_is_asked(
        self, database: Database, workspace: Path, model: FakeModel
    ) -> None:
        heard: list[str] = []

        async def hear(name: str, *_: object) -> Reply:
            heard.append(name)
            return heard_as("once")

        limits = Limits(day_usd=0.4)
        path = await build(database, workspace, model, cpu=Reads(self.VOICE), hear=hear, limits=limits)
        async with path.working(), asyncio.timeout(30):
            for name in ("f1", "f2"):
                path.channel.files[name] = name.encode()
                await path.answers.wait(await path.tell("hear it", attachments=(Attachment(name, "voice.ogg"),)))
        problems = [problem for (*_, problem) in await path.rows(FOUND)]
        assert (len(heard), sorted(problems)) == (1, ["", extraction.OUT_OF_BUDGET])

    async def test_a_film_is_transcribed_too(self, ask: Ask, model: FakeModel) -> None:
        async def hear(name: str, mime: str, audio: bytes) -> Reply:
            return heard_as(f"{name} {mime}")

        await ask(Reads(derived("video", "video/mp4")), b"film", "round.mp4", hear=hear)
        assert "recording.mp4 video/mp4" in shown(model.prompts[0]).text

    @pytest.mark.parametrize(
        ("who", "told"), [(OWNER, "as models.transcription in"), (MEMBER, "ask this agent's owner")]
    )
    async def test_without_a_model_for_it_each_person_is_told_once_what_to_do(
        self, database: Database, workspace: Path, model: FakeModel, who: str, told: str
    ) -> None:
        instance = None
        for name in ("f1", "f2"):
            path = await build(database, workspace, model, instance, cpu=Reads(self.VOICE))
            instance = path.instance
            path.channel.files[name] = name.encode()
            async with path.working(), asyncio.timeout(30):
                await path.ask("hear it", chat=who, sender=who, attachments=(Attachment(name, "voice.ogg"),))
            assert f"; {NO_TRANSCRIPTION}]" in shown(model.prompts[-1]).text, "each is named as not heard"
        [notice] = [text for kind, text in await path.transcript() if kind == "notice" and "can't hear" in text]
        assert told in notice

    @pytest.mark.parametrize(
        ("mime", "error", "problem", "tasks"),
        [
            ("audio/ogg", SupaclawError("no credit"), "no credit; it is tried again later, or at once", 1),
            ("audio/ogg", ModelError(ErrorKind.AUTH, "bad key"), "bad key; it is tried again later, or at once", 1),
            ("audio/ogg", ModelError(ErrorKind.BAD_REQUEST, "no sound"), "no sound", 0),
            (
                "audio/amr",
                ModelError(ErrorKind.BAD_REQUEST, "no"),
                "no; few services take audio/amr: send it as ogg",
                0,
            ),
        ],
    )
    async def test_a_failure_that_may_pass_is_tried_again_later(
        self, ask: Ask, mime: str, error: SupaclawError, problem: str, tasks: int
    ) -> None:
        async def hear(*_: object) -> Reply:
            raise error

        path = await ask(Reads(derived("audio", mime)), name="voice.ogg", hear=hear)
        [(*_, said)] = await path.rows(FOUND)
        assert said.startswith(f"it couldn't be transcribed: {problem}")
        assert (await path.rows("select count(*) from tasks where kind = 'transcribe'")) == [(tasks,)]

    async def test_the_same_bytes_sent_again_and_the_planned_try_ask_the_service_again(
        self, database: Database, workspace: Path, model: FakeModel
    ) -> None:
        answers = [ModelError(ErrorKind.SERVER, "overloaded"), ModelError(ErrorKind.AUTH, "bad key"), "Buy tea."]

        done = asyncio.Event()

        async def hear(*_: object) -> Reply:
            if isinstance(answer := answers.pop(0), ModelError):
                raise answer
            done.set()
            return heard_as(answer)

        path = await build(database, workspace, model, cpu=Reads(self.VOICE), hear=hear)
        path.channel.files["f1"] = b"sound"
        async with path.working(), asyncio.timeout(30):
            for problem in ("overloaded", "bad key"):
                await path.answers.wait(await path.tell("hear it", attachments=(Attachment("f1", "voice.ogg"),)))
                assert problem in str(model.prompts[-1])
            await database.run(lambda tx: tasks.hasten_kind(tx, "transcribe"))
            path.signals.tasks.set()
            await done.wait()
            await path.worker.settle(10)
        [(status, text)] = await path.rows("select status, text_path from tasks, files where tasks.kind = 'transcribe'")
        assert (status, (path.workspace / text).read_text()) == ("completed", "Buy tea.")

    @pytest.mark.parametrize("who", [OWNER, MEMBER])
    async def test_reading_it_names_the_problem_and_tries_again_at_once(
        self, database: Database, workspace: Path, model: FakeModel, who: str
    ) -> None:
        again, answers = asyncio.Event(), ["bad key", "still bad"]

        async def hear(*_: object) -> Reply:
            answer = answers.pop(0)
            if not answers:
                again.set()
            raise ModelError(ErrorKind.AUTH, answer)

        path = await build(database, workspace, model, cpu=Reads(self.VOICE), hear=hear)
        path.channel.files["f1"] = b"OggS\0\xff\xfe"
        async with path.working(), asyncio.timeout(30):
            await path.ask("hear it", chat=who, sender=who, attachments=(Attachment("f1", "voice.bin"),))
            [(file,)] = await path.rows("select path from files where mime = 'audio/ogg'")
            model.answer = in_turn(said("", call("read_file", path=file)), said("done"))
            await path.ask("read it", chat=who, sender=who)
            path.signals.tasks.set()
            await again.wait()
        assert "bad key" in str(results(model.prompts[-1]))

    @pytest.mark.parametrize(("first", "calls"), [("  ", 1), (ModelError(ErrorKind.AUTH, "bad key"), 2)])
    async def test_a_reply_tries_a_failed_one_again_and_pays_no_silence_twice(
        self, database: Database, workspace: Path, model: FakeModel, first: str | ModelError, calls: int
    ) -> None:
        answers = [first, "Buy tea."]

        async def hear(*_: object) -> Reply:
            if isinstance(answer := answers.pop(0), ModelError):
                raise answer
            return heard_as(answer)

        path = await build(database, workspace, model, cpu=Reads(self.VOICE), hear=hear)
        path.channel.files["f1"] = b"sound"
        async with path.working(), asyncio.timeout(30):
            await path.ask("hear it", id="m1", attachments=(Attachment("f1", "voice.ogg"),))
            await path.ask("and now?", quoted="[voice]", quoted_id="m1")
            assert ("Buy tea." in str(model.prompts[-1])) is (calls == 2)
            await path.ask("again", attachments=(Attachment("f1", "voice.ogg"),))
        assert len(answers) == 2 - calls

    @pytest.mark.parametrize(("most", "problem"), [(9, "no speech was found in it"), (3, "only files up to")])
    async def test_silence_and_length_are_told(
        self, ask: Ask, monkeypatch: pytest.MonkeyPatch, most: int, problem: str
    ) -> None:
        async def hear(*_: object) -> Reply:
            assert most > 3, "it was sent"
            return heard_as("  ")

        monkeypatch.setattr(extraction, "MAX_AUDIO_BYTES", most)
        path = await ask(Reads(self.VOICE), b"sound", "voice.ogg", hear=hear)
        [(*_, said)] = await path.rows(FOUND)
        assert problem in said


async def test_files_that_are_read_at_the_same_time_do_not_clear_each_other_away(
    database: Database, workspace: Path, model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await build(database, workspace, model, cpu=Reads(derived(description="fine")))
    remove, swept = shutil.rmtree, list[Path]()

    def noted(folder: Path, **more: Any) -> None:
        if folder.name == "ingest":
            swept.append(folder)
        remove(folder, **more)

    monkeypatch.setattr(shutil, "rmtree", noted)
    for number in range(2):
        path.channel.files[f"f{number}"] = str(number).encode()
    async with path.working():
        asked = [
            await path.tell("read", chat=chat, sender=chat, attachments=(Attachment(f"f{n}", f"{n}.pdf"),))
            for n, chat in enumerate((OWNER, MEMBER))
        ]
        for each in asked:
            await path.answer(each)
    assert len(swept) == 1
    assert await path.rows("select distinct problem from files") == [("",)]


async def test_what_the_process_claims_in_pages_is_not_believed(ask: Ask) -> None:
    path = await ask(Reads(derived(pages=2**31 - 1, text="text.txt"), {"text.txt": b"whole", "001.txt": b"one"}))
    [day] = (path.workspace / "uploads").iterdir()
    assert [file.name for file in (day / "a.pdf.pages").iterdir()] == ["001.txt"]


def test_a_start_imports_nothing_that_reads_files() -> None:
    loaded = "import sys, gateway.app.gateway; print([m for m in sys.modules if m.startswith('gateway.ingest')])"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
