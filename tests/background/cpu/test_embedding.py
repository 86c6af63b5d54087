"""The model that is shipped, in its process, and models that misbehave there."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from gateway.background.cpu import embedding
from gateway.background.cpu.embedding import LocalEmbedder, Model
from gateway.domain.errors import OwnerMustAct
from gateway.domain.memory.memories import Embedder, EmbeddingUnavailable, Vector
from gateway.llm.embedding import e5
from tests.background import embedding_models
from tests.fakes.eventually import eventually

PATIENT = 100.0
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def running(
    model: Model = e5.vectors, *, patience: float | None = PATIENT, **options: float
) -> AsyncIterator[LocalEmbedder]:
    embedder = LocalEmbedder(model, patience=patience, **options)
    try:
        yield embedder
    finally:
        await embedder.close()


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def processes() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it ends in this moment; a zombie counts as one
            if "gateway.background.cpu.child" in child.cmdline():
                found.append(child)
    return found


def kill_and_wait(process: psutil.Process) -> None:
    """It is dead, and the event loop has not been told yet."""
    process.kill()
    with suppress(ChildProcessError):  # a thread of asyncio may be quicker
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


async def test_the_same_thing_said_otherwise_is_near_in_three_languages() -> None:
    said = (
        "The spare key of the bicycle is in the blue bowl by the door.",
        "Der Ersatzschlüssel fürs Fahrrad liegt in der blauen Schale neben der Tür.",
        "自転車のスペアキーはドアのそばの青いボウルに入っています。",
    )
    others = (
        "My sister is allergic to nuts.",
        "Die Miete wird am Ersten abgebucht.",
        "会議は木曜日の四時に移りました。",
    )
    asked = (
        "Where do I find a second key for my bike?",
        "Wo ist der zweite Fahrradschlüssel?",
        "自転車の予備の鍵はどこ？",
    )
    async with running() as embedder:
        near, far = await embedder.passages(said), await embedder.passages(others)
        for language, question in enumerate(asked):
            vector = await embedder.query(question)
            for place, (right, wrong) in enumerate(zip(near, far, strict=True)):
                assert cosine(vector, right) > cosine(vector, wrong) + (0.03 if place == language else 0.01)
        embedded: Embedder = embedder
        assert (embedded.dimensions, len(near[0])) == (384, 384)
        assert cosine(near[0], near[0]) == pytest.approx(1)


async def test_a_text_of_any_kind_has_a_vector_and_what_is_beyond_512_tokens_none() -> None:
    long = "the house by the sea " * 200
    async with running() as embedder:
        odd = await embedder.passages(["", "\0\udc80 \u200b", "🙂" * 300, "ก" * 300, long, long + "and a dragon"])
        assert odd[-1] == odd[-2]
        assert await embedder.passages([]) == ()
        assert len({*odd}) == 5


async def test_a_question_goes_before_the_rest_of_a_batch(tmp_path: Path) -> None:
    async with running(embedding_models.gated) as embedder:
        batch = asyncio.create_task(embedder.passages([f"{tmp_path} {'x' * 1_000}"] * 3))
        await eventually((tmp_path / "begun").exists)
        question = asyncio.create_task(embedder.query(str(tmp_path)))
        await asyncio.sleep(0)
        (tmp_path / "open").touch()
        await asyncio.gather(batch, question)
    assert (tmp_path / "begun").read_text().split("\n") == ["passage: 1", "query: 1", "passage: 1", "passage: 1", ""]


async def test_an_expected_question_is_embedded_once_and_not_while_others_wait(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    question = str(tmp_path)
    async with running(embedding_models.gated) as embedder:
        embedder.expect(question)
        await eventually((tmp_path / "begun").exists)
        await embedder.query(question)
        assert (tmp_path / "begun").read_text().splitlines() == ["query: 1"]
        await embedder.query(question)  # an expectation is for one query
        other = asyncio.create_task(embedder.query(question))
        await asyncio.sleep(0)
        embedder.expect(question)
        await asyncio.gather(other, embedder.query(question))
    assert (tmp_path / "begun").read_text().splitlines() == ["query: 1"] * 4


async def test_a_question_is_asked_again_if_its_expectation_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with running(embedding_models.fails) as embedder:
        embedder.expect("hello")
        with pytest.raises(EmbeddingUnavailable, match="failed"):
            await embedder.query("hello")
        embedder.expect("nobody asks it")
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_small_texts_are_embedded_together(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    async with running(embedding_models.gated) as embedder:
        assert len(await embedder.passages([f"{tmp_path} x"] * 5)) == 5
        assert len(await embedder.passages([f"{tmp_path} x"] * 20)) == 20
    first, *others = (tmp_path / "begun").read_text().splitlines()
    assert first == "passage: 5"
    assert len(others) >= 3, "a question would wait for all of them"


async def test_a_question_gives_up_and_the_model_goes_on_loading_for_the_next(tmp_path: Path) -> None:
    async with running(embedding_models.gated, patience=0.05) as embedder:
        with pytest.raises(EmbeddingUnavailable, match=r"^the embedding model is being loaded or busy"):
            await embedder.query(str(tmp_path))
        await eventually((tmp_path / "begun").exists)
        [process] = processes()
        (tmp_path / "open").touch()
        await embedder.passages([str(tmp_path)])
        assert processes() == [process]


async def test_a_question_waits_longer_while_the_model_is_being_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "LOADING_SECONDS", PATIENT)
    monkeypatch.setattr(embedding, "QUERY_SECONDS", 0)
    (tmp_path / "open").touch()
    async with running(embedding_models.gated, patience=None) as embedder:
        assert await embedder.query(str(tmp_path))
        with pytest.raises(EmbeddingUnavailable, match="no answer within 0 seconds"):
            await embedder.query(str(tmp_path))
        kill_and_wait(processes()[0])
        assert await embedder.query(str(tmp_path))


async def test_who_no_longer_waits_costs_nothing(tmp_path: Path) -> None:
    async with running(embedding_models.gated) as embedder:
        first, second = (asyncio.create_task(embedder.passages([str(tmp_path)] * number)) for number in (1, 2))
        await eventually((tmp_path / "begun").exists)
        second.cancel()
        (tmp_path / "open").touch()
        await first
        await embedder.passages([str(tmp_path)] * 3)
    assert (tmp_path / "begun").read_text() == "passage: 1\npassage: 3\n"


async def test_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    async with running(embedding_models.gated) as embedder:
        await embedder.query(str(tmp_path))
        [process] = processes()
        kill_and_wait(process)
        await embedder.query(str(tmp_path))
        assert [each.pid for each in processes()] != [process.pid]


async def test_a_process_that_dies_over_a_text_is_told_and_replaced(tmp_path: Path) -> None:
    async with running(embedding_models.gated) as embedder:
        batch = asyncio.create_task(embedder.passages([str(tmp_path)]))
        await eventually((tmp_path / "begun").exists)
        [process] = processes()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EmbeddingUnavailable, match=r"^the embedding model failed: .*signal 9"):
            await batch
        (tmp_path / "open").touch()
        assert await embedder.query(str(tmp_path))


async def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    async with running(embedding_models.hangs_at_first, seconds=5.0) as embedder:
        with pytest.raises(EmbeddingUnavailable, match="took longer than 5 seconds"):
            await embedder.query(str(tmp_path / "mark"))
        assert await embedder.query(str(tmp_path / "mark"))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (embedding_models.short, "2 numbers instead of 384"),
        (embedding_models.fewer, "gave 0 vectors for 1 texts"),
        (embedding_models.words, "something in it that is no number"),
        (embedding_models.fails, "ValueError: 1 too many"),
    ],
)
async def test_what_is_no_vector_is_refused(model: Model, told: str) -> None:
    async with running(model) as embedder:
        with pytest.raises(EmbeddingUnavailable, match=told):
            await embedder.query("x")


async def test_closing_fails_what_is_open(tmp_path: Path) -> None:
    async with running(embedding_models.gated) as embedder:
        open_ends = [asyncio.create_task(embedder.query(str(tmp_path))) for _ in range(2)]
        await eventually((tmp_path / "begun").exists)
    for each in open_ends:
        with pytest.raises(EmbeddingUnavailable, match="the gateway stops"):
            await each
    assert processes() == []


async def test_the_gateway_itself_loads_nothing_of_it(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from gateway.background.cpu.embedding import LocalEmbedder
async def main():
    embedder = LocalEmbedder(patience=100)
    await embedder.query("tea")
    await embedder.close()
asyncio.run(main())
print(sorted({"numpy", "onnxruntime"} & {*sys.modules}))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert await process.communicate() == (b"[]\n", None)


def test_a_model_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OwnerMustAct, match="install SupaClaw again"):
        e5.E5(tmp_path)
