"""`supaclaw skills` and `supaclaw tool-files`: skills and tools in files, which the owner confirms."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

from gateway.agent.skills.library import SKILLS, Form, ListedSkill, SkillRow, Skills, described_skill, undecided_skill
from gateway.agent.skills.sources import guarded
from gateway.agent.tool_files.confirmed import FORM, ToolFiles
from gateway.cli.connections.database import with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    Yes,
    argument,
    confirm_reviewed,
    facts_of,
    flag,
    print_result,
    print_rows,
)
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.conversation.diff import legible
from gateway.domain.errors import OwnerMustAct
from gateway.net.addresses import Rules
from gateway.store.connection.pool import Database
from gateway.store.trust.pins import Pin
from gateway.workspace.files.tree import Workspace
from gateway.workspace.skills.folder import Files, digest, read

Result = TypeVar("Result")

COLUMNS = ("name", "version", "state", "findings", "description")
Name = Annotated[str, argument("As `supaclaw skills list` shows it.", "NAME")]
Despite = Annotated[bool, flag("Confirm it even with severe findings.", "--despite-findings")]


def show_all(as_json: AsJson = False) -> None:
    """List the skills, and which of them are on."""
    list_entries(SKILLS, as_json, "No skills. `supaclaw skills install LINK` installs one.")


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a skill, its scan and the changes since you confirmed it."""
    show_entry(name, as_json, SKILLS)


def install(
    source: Annotated[str, argument("A GitHub link, a folder, a SKILL.md, or -.", "SOURCE")],
    yes: Yes = False,
    despite_findings: Despite = False,
    as_json: AsJson = False,
) -> None:
    """Install a skill, after you have reviewed it."""

    async def stage(skills: Skills) -> tuple[Pin, str]:
        files, origin = _local(source)
        pin, found = await (skills.stage_files(files, origin) if files else skills.stage(origin))
        return pin, described_skill(found, await skills.on_disk(pin.name), pin.source)

    pin, text = with_library(stage)
    confirm_shown(pin.name, pin.sha256, text, yes, despite_findings, as_json)


def enable(name: Name, yes: Yes = False, despite_findings: Despite = False, as_json: AsJson = False) -> None:
    """Confirm a skill, or its new version, and switch it on."""
    shown = with_library(lambda skills: undecided_skill(skills, name))
    confirm_shown(name, digest(shown[0]), described_skill(*shown), yes, despite_findings, as_json)


def disable(name: Name, as_json: AsJson = False) -> None:
    """Switch a skill off; its files stay."""
    disable_entry(name, as_json, SKILLS)


def remove(name: Name, yes: Yes = False) -> None:
    """Delete a skill and its files."""
    if not yes:
        confirm_reviewed(f"Delete the skill {name} and its files?", "skills")
    with_library(lambda skills: skills.remove(name))
    echo(f"removed {name}")


def confirm_shown(
    name: str, sha256: str, text: str, yes: bool, despite_findings: bool, as_json: bool, form: Form = SKILLS
) -> None:
    """Show the whole skill and ask, unless `yes`; then switch on exactly this version."""
    if not yes:
        echo(legible(text))
        confirm_reviewed(f"May the agent follow {name} like your own instructions?", form.commands)
    with_library(lambda skills: skills.confirm(name, sha256, despite_findings=despite_findings), form)
    print_entry(name, as_json, form)


def list_entries(form: Form, as_json: bool, none: str) -> None:
    """Print all skills, or all tool files."""
    rows = [SkillRow.of(each) for each in with_library(lambda library: library.list_all(), form)]
    print_rows(rows, COLUMNS, as_json=as_json, none=none)


def show_entry(name: str, as_json: bool, form: Form) -> None:
    """Print one, with all that enabling it would confirm."""

    async def read_one(library: Skills) -> tuple[ListedSkill, str]:
        return await library.get(name), described_skill(*await undecided_skill(library, name), form)

    found, text = with_library(read_one, form)
    row = SkillRow.of(found)
    waits = f"\na new version is waiting: `supaclaw {form.commands} enable` confirms it\n" if row.waiting else ""
    print_result([facts_of(row)], f"{name} is {row.state}\n{waits}{legible(text)}", as_json=as_json)


def disable_entry(name: str, as_json: bool, form: Form) -> None:
    """Switch one off, and print its state."""
    with_library(lambda library: library.disable(name), form)
    print_entry(name, as_json, form)


def print_entry(name: str, as_json: bool, form: Form = SKILLS) -> None:
    """Print the state of one."""
    row = SkillRow.of(with_library(lambda skills: skills.get(name), form))
    print_result([facts_of(row)], f"{name} {row.version} is {row.state}", as_json=as_json)


def _local(source: str) -> tuple[Files, str]:
    """The files and the path of a folder; for other sources no files, and the link or the text of a SKILL.md."""
    if source == "-":
        return {}, sys.stdin.read()
    if source.startswith("https://"):
        return {}, source
    path = Path(source).resolve()
    try:
        if path.is_dir():
            return read(path.parent, path.name, ()), str(path)
        return {}, path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OwnerMustAct(f"{source[:200]} isn't a link, and can't be read: {error.strerror}") from error


def with_library(work: Callable[[Skills], Awaitable[Result]], form: Form = SKILLS) -> Result:
    """Run `work` with the skills, or by `form` the tool files, of the owner's workspace."""

    async def run(database: Database) -> Result:
        environment = Environment.read(os.environ)
        config = load(environment.config, os.environ)
        private, web = config.net.private_allow, config.tools.web
        fetch = guarded(lambda: Rules.of(private, web.allow_hosts, web.deny_hosts))
        return await work(Skills(database, Workspace(environment.workspace), SystemClock(), fetch, form))

    return with_database(run)


def list_tool_files(as_json: AsJson = False) -> None:
    """List the tools that files declare, and which of them are on."""
    list_entries(FORM, as_json, "No tool files; docs/tools.md says how to write one.")


def show_tool_file(name: Name, as_json: AsJson = False) -> None:
    """Show a tool file, its scan and what changed since you confirmed it."""
    show_entry(name, as_json, FORM)


def enable_tool_file(name: Name, yes: Yes = False, despite_findings: Despite = False, as_json: AsJson = False) -> None:
    """Confirm a tool file and its OpenAPI document."""

    async def read(library: Skills) -> tuple[str, str]:
        await ToolFiles(library).complete(name)
        shown = await undecided_skill(library, name)
        return digest(shown[0]), described_skill(*shown, FORM)

    if not yes and (url := with_library(lambda library: ToolFiles(library).missing_document(name), FORM)):
        confirm_reviewed(f"Fetch its OpenAPI document? Its host learns this address: {url}", FORM.commands)
    sha256, text = with_library(read, FORM)
    confirm_shown(name, sha256, text, yes, despite_findings, as_json, FORM)


def disable_tool_file(name: Name, as_json: AsJson = False) -> None:
    """Switch a tool file off; it stays."""
    disable_entry(name, as_json, FORM)
