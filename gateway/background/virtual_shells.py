"""Shells on virtual files: each turn has its own files, which end with it."""

import asyncio
import base64
import json
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from gateway.background.cpu import Cpu, CpuJobFailed
from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.sandbox.virtual.shell import GIVEN, MEMORY, SECONDS, STATE, ShellResult, run_script
from gateway.tools import ScriptRun, ShellFailed

TURNS = 16
"""Whose files are kept; those of the turn that was used longest ago are dropped."""
SPARE_SECONDS = 10.0
PROCESS_MEMORY = MEMORY + 1024**3


@dataclass(slots=True)
class VirtualShells:
    """One script at a time, in a process of its own; `scratch` is a folder of its own, emptied at the first use."""

    scratch: Path
    cpu: Cpu = field(default_factory=Cpu)
    _turns: OrderedDict[TaskId, Label] = field(default_factory=OrderedDict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(
        self,
        task: TaskId,
        script: str,
        files: Mapping[str, bytes],
        pages: Mapping[str, bytes],
        save: Sequence[str],
        label: Label,
    ) -> ScriptRun:
        """Run the script on the files of the turn and these; `label` is theirs. Raises `ShellFailed`."""
        async with self._lock:
            folder = await asyncio.to_thread(self._folder, task)
            self._turns[task] = label = max(label, self._turns[task])
            source, target = folder / "before", folder / "after"
            await asyncio.to_thread(_give, source, target, files, pages)
            arguments = str(source), str(target), script, list(save)
            try:
                answer = await self.cpu.run(
                    run_script, *arguments, seconds=SECONDS + SPARE_SECONDS, memory=PROCESS_MEMORY
                )
            except CpuJobFailed as error:
                raise ShellFailed(str(error)) from error
            result = TypeAdapter(ShellResult).validate_python(answer)
            return ScriptRun(result, await asyncio.to_thread(_take, source, target, result.saved), label)

    async def close(self) -> None:
        """End the process."""
        await self.cpu.close()

    def _folder(self, task: TaskId) -> Path:
        if not self._turns:
            shutil.rmtree(self.scratch, ignore_errors=True)
        self._turns.setdefault(task, Label.OWNER)
        self._turns.move_to_end(task)
        if len(self._turns) > TURNS:
            shutil.rmtree(self.scratch / str(self._turns.popitem(last=False)[0]), ignore_errors=True)
        folder = self.scratch / str(task)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


def _give(source: Path, target: Path, files: Mapping[str, bytes], pages: Mapping[str, bytes]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for folder in (source, target):
        folder.mkdir(mode=0o700, exist_ok=True)
    given = {"files": _coded(files), "pages": _coded(pages)}
    (source / GIVEN).write_text(json.dumps(given), "utf-8")


def _coded(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in contents.items()}


def _take(source: Path, target: Path, saved: Sequence[str]) -> dict[str, bytes]:
    (target / STATE).replace(source / STATE)
    return {path: (target / f"saved-{number}").read_bytes() for number, path in enumerate(saved)}
