"""A CPU process that makes of every file what it is told to."""

from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.background.cpu.executor import MAX_MEMORY_BYTES, Cpu
from gateway.domain.json import Json
from gateway.ingest.output import ExtractedFile, FileKind


class Reads(Cpu):
    """`files` is what it leaves in the target folder; an error is raised instead."""

    def __init__(self, answer: ExtractedFile | Exception, files: Mapping[str, bytes] | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.files = files or {}
        self.asked: list[tuple[Json, ...]] = []

    async def run(
        self, function: Callable[..., Json], *arguments: Json, seconds: float, memory: int = MAX_MEMORY_BYTES
    ) -> Json:
        self.asked.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        for name, data in self.files.items():
            (Path(str(arguments[1])) / name).write_bytes(data)
        return self.answer.to_json()


def derived(
    kind: FileKind = "pdf",
    mime: str = "application/pdf",
    *,
    pages: int = 0,
    text: str = "",
    view: str = "",
    description: str = "",
    problem: str = "",
) -> ExtractedFile:
    return ExtractedFile(kind, mime, pages, 0, text, view, description, problem)
