"""Scripts of tool files, run in the jail like commands of `exec`, with their arguments as JSON on the input."""

import json
from dataclasses import dataclass

from gateway.agent.exec.commands import STALE, Permit, WorkspaceCommands
from gateway.agent.tool_files.confirmed import ConfirmedTool, ToolFiles
from gateway.agent.tool_sources import AnyArguments
from gateway.beside import beside
from gateway.domain.conversation.diff import written_out
from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Change,
    Effect,
    Labelled,
    Tool,
    ToolClass,
    ToolFailed,
    Wording,
)
from gateway.domain.json import JsonObject, json_or_text
from gateway.domain.principals import Label
from gateway.net.api import check_arguments
from gateway.sandbox.command import Ending, Limits, Report
from gateway.sandbox.workshop import Running
from gateway.workspace.tool_files.declaration import FILE, Script
from gateway.workspace.tool_files.tool_file import FOLDER, ToolFile, schema_of

MAX_RESULT = 12_000
"""Characters of a result; longer ones are stored as a file."""
MAX_OUTPUT, MAX_ERRORS = 2 * 1024**2, 4_000
"""Bytes of output after which a script is stopped, and of its errors that are shown."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """Runs one script."""

    files: ToolFiles
    confirmed: ConfirmedTool
    script: Script
    commands: WorkspaceCommands

    def tool(self) -> AnyTool:
        """The script as a tool."""
        return Tool(
            name := f"{self.confirmed.tool.name}_run",
            described(self.confirmed.tool),
            AnyArguments,
            self.run,
            Effect.ONCE if self.script.hosts else Effect.LOCAL,
            timeout=self.script.seconds + 60,
            max_result=MAX_RESULT,
            kind=ToolClass.IRREVERSIBLE if self.script.hosts else ToolClass.RUN,
            lasting=self.lasting,
            private=True,
            wording=Wording(f"Running {name}", f"Ran {name}"),
            parameters=schema_of(self.script.parameters),
        )

    async def run(self, arguments: AnyArguments, caller: Caller) -> Labelled:
        """Run the script and return its output; raises `ToolFailed`."""
        files = await self.files.bytes_of(self.confirmed)
        given = json.dumps(self._given(arguments), ensure_ascii=False).encode("utf-8", "replace")
        limits = Limits(seconds=self.script.seconds)
        label, hosts = Label.UNTRUSTED if self.script.hosts else caller.label, self.script.hosts
        async with self.commands.queued(label) as permit:
            running = await self.commands.start_script(self.script.words, files, given, permit, limits, hosts)
            output, errors, report = await _followed(running)
        return Labelled(_result(output, errors, report, permit), permit.label)

    async def lasting(self, arguments: AnyArguments, _caller: Caller) -> Change:
        """The command with its arguments; an approval covers this version of the files."""
        await self.files.check(self.confirmed)
        call = written_out(f"{self.confirmed.tool.name}: {self.script.command}", self._given(arguments))
        reached = await self.commands.reached(self.script.hosts)
        base = f"{self.confirmed.sha256} {await self.commands.seen()}"
        return Change(f"Run this script, {reached}:\n{call}", base, STALE)

    def _given(self, arguments: AnyArguments) -> JsonObject:
        given = dict(arguments.model_extra or {})
        required = [each.name for each in self.script.parameters if each.required]
        check_arguments([each.name for each in self.script.parameters], required, given)
        return given


async def _followed(running: Running) -> tuple[bytes, bytes, Report]:
    output = bytearray()
    async with beside(running.last_errors(MAX_ERRORS)) as errors:
        report = await running.followed(output.extend, MAX_OUTPUT)
        return bytes(output), b"" if report.ending is Ending.OUTPUT else await errors, report


def _result(output: bytes, errors: bytes, report: Report, permit: Permit) -> JsonObject:
    if report.ending is Ending.REFUSED:
        raise ToolFailed.own("not_started", f"The script did not start: {report.problem}")
    text = output.decode("utf-8", "replace")
    shown_errors = errors.decode("utf-8", "replace")
    if report.ending is not Ending.EXITED:
        limit = {Ending.OUTPUT: f"It wrote more than {MAX_OUTPUT // 1024**2} MB and was ended."}
        words = limit.get(report.ending, report.problem or f"It was ended: {report.ending}.")
        return {"error": report.ending.value, "message": words, "output": text[:MAX_ERRORS], "errors": shown_errors}
    if report.code:
        message = f"The script ended with code {report.code}; errors says why."
        return {"error": "failed", "message": message, "exit_code": report.code, "output": text, "errors": shown_errors}
    return {"result": json_or_text(text), **({"errors": shown_errors} if shown_errors else {}), **_changed(permit)}


def described(tool: ToolFile, operation: str = "") -> str:
    """The description of a tool for the model, with the place of its documentation."""
    docs = f" How to use it: {'/'.join(FOLDER)}/{tool.name}/{FILE}." if tool.body else ""
    return f"{tool.head.name}: {operation or tool.description}{docs}"


def _changed(permit: Permit) -> JsonObject:
    found = permit.changes
    paths = (*found.new, *found.changed, *found.deleted) if found else ()
    return {"changed_files": [*paths[:30]]} if paths else {}
