"""Shells on virtual files: each turn has its own files, which are deleted with it."""

import asyncio
import base64
import json
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from gateway.background.cpu.executor import Cpu, CpuJobFailed
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.sandbox.virtual.shell import GIVEN, MEMORY, SECONDS, STATE, ShellResult, run_script
from gateway.tools import ScriptRun, ShellScript

TURNS = 16
"""How many turns keep their files; the least recently used are dropped."""
SPARE_SECONDS = 10.0
PROCESS_MEMORY = MEMORY + 1024**3


@dataclass(slots=True)
class VirtualShells:
    """Runs one script at a time in a separate process; the first use empties `scratch`, which others must not use."""

    scratch: Path
    cpu: Cpu = field(default_factory=Cpu)
    _turns: OrderedDict[TaskId, Label] = field(default_factory=OrderedDict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, task: TaskId, script: ShellScript) -> ScriptRun:
        """Run the script on the turn's files and its own. Raises `ToolFailed`, which may quote any of them."""
        async with self._lock:
            folder = await asyncio.to_thread(self._folder, task)
            self._turns[task] = label = max(script.label, self._turns[task])
            source, target = folder / "before", folder / "after"
            await asyncio.to_thread(_give, source, target, script)
            arguments = str(source), str(target), script.text, list(script.save)
            try:
                answer = await self.cpu.run(
                    run_script, *arguments, seconds=SECONDS + SPARE_SECONDS, memory=PROCESS_MEMORY
                )
                result = TypeAdapter(ShellResult).validate_python(answer)
                return ScriptRun(result, await asyncio.to_thread(_take, source, target, script.save), label)
            except (CpuJobFailed, ValidationError, OSError) as error:
                raise ToolFailed("failed", f"{error}; nothing is kept of this call.", label) from error

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


def _give(source: Path, target: Path, script: ShellScript) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for folder in (source, target):
        folder.mkdir(mode=0o700, exist_ok=True)
    (source / GIVEN).write_text(json.dumps({"files": _coded(script.files), "pages": _coded(script.pages)}), "utf-8")


def _coded(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in contents.items()}


def _take(source: Path, target: Path, save: Sequence[str]) -> dict[str, bytes]:
    """The requested files that exist; ignores the script's own list of files."""
    (target / STATE).replace(source / STATE)
    left = {path: target / f"saved-{number}" for number, path in enumerate(save)}
    return {path: file.read_bytes() for path, file in left.items() if file.exists()}
