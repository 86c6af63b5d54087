"""Runs one script in a shell on virtual files, in a forked child without rights; for a process of its own."""

import base64
import json
import re
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gateway.domain.json import Json, JsonObject
from gateway.sandbox.child import Jail, python_files, run_in_jail
from gateway.sandbox.jail import landlock, seccomp

if TYPE_CHECKING:
    from just_bash import Bash, InMemoryFs

HOME = "/workspace"
STATE, GIVEN = "state.json", "given.json"
SECONDS = 30.0
MEMORY = 512 * 1024**2
SPACE = 64 * 1024**2
MAX_BYTES = 16 * 1024**2
"""Of all files together."""
MAX_SHOWN = 100_000
"""Characters that are kept of the output, and of the errors."""

_EMPTY_BRACES = re.compile(r"""\{\}[^\s'"`;|&)]|[^\s'"`;|&(]\{\}""")
EMPTY_BRACES = "{} beside other characters isn't supported in bash; put all of the word in quotes"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ShellResult:
    """The result of a script; `refused` names what bash has and this shell hasn't."""

    output: str = ""
    errors: str = ""
    refused: tuple[str, ...] = ()
    exit_code: int = 2


def is_supported() -> bool:
    """Whether this kernel can confine scripts: just-bash passes parts of them to Python's eval."""
    return sys.platform == "linux" and bool(landlock.abi()) and seccomp.supported()


def run_script(source: str, target: str, script: str, save: list[str]) -> Json:
    """Run a script and return the fields of `ShellResult`.

    `source` holds the files as JSON, `{"files": {path: base64}, "pages": {url: base64}}` in `STATE`, and additional
    ones in `GIVEN`; `target` gets the new `STATE`, and as `saved-N` the content of the path N of `save`, if it exists.
    All of it is as trusted as the script. Raises `ChildFailed`.
    """
    import just_bash  # noqa: F401 - loaded before the fork, for all scripts to come

    return run_in_jail(shell_jail(source, target), partial(_run_child, source, target, script, save))


def shell_jail(source: str, target: str) -> Jail:
    """A script reads `source` and Python's own files, and writes to `target` alone."""
    return Jail((*python_files(), source), target, MEMORY, SECONDS, SPACE)


def _run_child(source: str, target: str, script: str, save: list[str]) -> Json:
    given = [json.loads(path.read_text("utf-8")) for name in (STATE, GIVEN) if (path := Path(source, name)).exists()]
    files = {name: content for each in given for name, content in each["files"].items()}
    pages = {url: body for each in given for url, body in each["pages"].items()}
    refused: list[str] = []
    bash = _shell(files, pages, refused)
    answer = _run(bash, script, refused)
    files_after = _files_of(bash)
    Path(target, STATE).write_text(json.dumps({"files": files_after, "pages": pages}), "utf-8")
    for number, name in enumerate(save):
        if name in files_after:
            Path(target, f"saved-{number}").write_bytes(base64.b64decode(files_after[name]))
    return answer


def _run(bash: "Bash", script: str, refused: list[str]) -> JsonObject:
    if _EMPTY_BRACES.search(script):
        return {"refused": [EMPTY_BRACES]}
    result = _run_coroutine(bash.exec(script, cwd=HOME))
    return {
        "output": result.stdout[:MAX_SHOWN],
        "errors": result.stderr[:MAX_SHOWN],
        "refused": list(dict.fromkeys(refused))[:20],
        "exit_code": 2 if refused else result.exit_code,
    }


def _shell(files: Mapping[str, str], pages: Mapping[str, str], refused: list[str]) -> "Bash":
    from just_bash import Bash, ExecutionLimits

    from gateway.sandbox.virtual.commands import commands

    given: dict[str, str | bytes] = {path: base64.b64decode(content) for path, content in files.items()}
    registry = commands({url: base64.b64decode(body) for url, body in pages.items()}, refused)
    limits = ExecutionLimits(max_loop_iterations=100_000)
    shell = Bash(files=given, cwd=HOME, env={"HOME": HOME}, limits=limits, commands=registry, unescape_html=False)
    _run_coroutine(shell.fs.mkdir(HOME, recursive=True))
    return shell


def _files_of(bash: "Bash") -> dict[str, str]:
    fs: InMemoryFs = bash.fs  # type: ignore[assignment]  # it is made without another one
    files, size = {}, 0
    for path in fs.get_all_paths():
        if _run_coroutine(fs.is_file(path)):
            content = _run_coroutine(fs.read_file_bytes(path))
            size += len(content)
            if size > MAX_BYTES:
                raise MemoryError
            files[path] = base64.b64encode(content).decode()
    return files


def _run_coroutine(work: Coroutine[object, None, Result]) -> Result:
    """The result of a coroutine that never waits, as all is in memory; without an event loop, which opens sockets."""
    try:
        work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    work.close()
    raise RuntimeError("a command waits for something")
