"""`supaclaw skills` and `supaclaw tool-files`: skills, agents and tools in files, which the owner confirms."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

from gateway.agent.skills.library import (
    SKILLS,
    Form,
    ListedSkill,
    Skills,
    described_skill,
    listed_facts,
    skill_changes,
    undecided_skill,
)
from gateway.agent.skills.sources import Fetch, find, guarded
from gateway.agent.tool_files.confirmed import FORM, ToolFiles
from gateway.cli.connections.database import with_database
from gateway.cli.storage.workspace import labelled_workspace
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    Yes,
    argument,
    confirm_reviewed,
    flag,
    print_result,
    print_rows,
)
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.conversation.diff import legible
from gateway.domain.errors import OwnerMustAct, SupaclawError, explained
from gateway.domain.principals import Label
from gateway.net.addresses import Rules
from gateway.store.connection.pool import Database
from gateway.store.trust.pins import Pin
from gateway.workspace.agents import adapted
from gateway.workspace.files.tree import Workspace
from gateway.workspace.skills.folder import MANIFESTS, Files, digest, read
from gateway.workspace.skills.scanning import scan, severe

Result = TypeVar("Result")

COLUMNS = ("name", "version", "state", "findings", "description")
Name = Annotated[str, argument("As the list shows it.", "NAME")]
Despite = Annotated[bool, flag("Confirm it even with severe findings.", "--despite-findings")]


def show_all(as_json: AsJson = False) -> None:
    """List the skills, and which of them are on."""
    list_entries(SKILLS, as_json, "No skills. `supaclaw skills install LINK` installs one.")


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a skill, its scan and the changes since you confirmed it."""
    show_entry(name, as_json, SKILLS)


def search(
    words: Annotated[list[str], argument("In its name; skills.sh sees them.", "WORDS")], as_json: AsJson = False
) -> None:
    """Find skills on GitHub in the index of skills.sh."""
    rows = asyncio.run(find(" ".join(words), guarded_fetch()))
    print_rows(rows, ("name", "installs", "link"), as_json=as_json, none="Nothing found.")


def install(
    source: Annotated[str, argument("A link, a SKILL.md, - or a folder: a skill, or a project.", "SOURCE")],
    yes: Yes = False,
    despite_findings: Despite = False,
    as_json: AsJson = False,
) -> None:
    """Review and install a skill, or the skills and agents of a project."""
    if not (every := _parts(Path(source).resolve())):
        _install_skill(source, yes, despite_findings, as_json)
    left = 0
    for path in every:
        try:
            if path.is_dir():
                _install_skill(str(path), yes, despite_findings, as_json)
            else:
                _install_agent(path, yes, despite_findings)
        except (SupaclawError, OSError) as error:
            left += 1
            echo(f"{path}: {error}", error=True)
    if left:
        raise SupaclawError(f"{left} of {len(every)} are not installed")


def update(name: Name, yes: Yes = False, despite_findings: Despite = False, as_json: AsJson = False) -> None:
    """Fetch a skill again, show what changed, and confirm it."""
    source = with_library(lambda skills: skills.get(name)).source
    if not source.startswith(("https://", "/")):
        raise OwnerMustAct(f"{name} came from {source}, which can't be fetched again; install it from a link or folder")
    _install_skill(source, yes, despite_findings, as_json)


def _parts(top: Path) -> list[Path]:
    """The folders of skills and the files of agents in a folder that isn't a skill itself."""
    if not os.access(top, os.R_OK) or any((top / name).is_file() for name in MANIFESTS):
        return []
    if top.suffix == ".md" and top.parent.name == "agents":
        return [top]
    homes = [top, top / "skills", top / ".claude/skills", top / ".agents/skills"]
    skills = [file.parent for home in homes for name in MANIFESTS for file in home.glob(f"*/{name}")]
    agents = [top / "agents", top / ".claude/agents", top / ".agents/agents", *[top] * (top.name == "agents")]
    return sorted({*skills, *(file for home in agents for file in home.rglob("*.md"))})


def _install_agent(file: Path, yes: bool, despite_findings: bool) -> None:
    """Show an agent's file as it would be stored, and ask, unless `yes`; then store exactly that as the owner's."""
    agent, data, lost = adapted(file.stem, file.read_bytes())
    findings, before = scan({agent.path: data}), Environment.read(os.environ).workspace / agent.path

    async def store(database: Database) -> None:
        await (await labelled_workspace(database)).write(agent.path, data, Label.OWNER, unlocked=True)

    if not yes:
        dropped = [f"left out, as it has no counterpart here: {', '.join(lost)}"] * bool(lost)
        changes = skill_changes({agent.path: before.read_bytes()} if before.is_file() else {}, {agent.path: data})
        echo(legible("\n".join([f"agent {agent.slug}, from {file}", *dropped, *map(str, findings), "", *changes])))
        confirm_reviewed(f"May {agent.slug} work by this prompt?", "agents")
    if severe(findings) and not despite_findings:
        raise OwnerMustAct(f"the scan of {agent.slug} has severe findings; read them, then add --despite-findings")
    with_database(store)
    echo(f"the agent {agent.slug} is installed")


def _install_skill(source: str, yes: bool, despite_findings: bool, as_json: bool) -> None:
    """Show a skill and ask, unless `yes`; then confirm exactly that."""

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
    rows = [listed_facts(each) for each in with_library(lambda library: library.list_all(), form)]
    print_rows(rows, COLUMNS, as_json=as_json, none=none)


def show_entry(name: str, as_json: bool, form: Form) -> None:
    """Print one, with all that enabling it would confirm."""

    async def read_one(library: Skills) -> tuple[ListedSkill, str]:
        return await library.get(name), described_skill(*await undecided_skill(library, name), form)

    found, text = with_library(read_one, form)
    row = listed_facts(found)
    waits = f"\na new version is waiting: `supaclaw {form.commands} enable` confirms it\n" if row["waiting"] else ""
    print_result([row], f"{name} is {row['state']}\n{waits}{legible(text)}", as_json=as_json)


def disable_entry(name: str, as_json: bool, form: Form) -> None:
    """Switch one off, and print its state."""
    with_library(lambda library: library.disable(name), form)
    print_entry(name, as_json, form)


def print_entry(name: str, as_json: bool, form: Form = SKILLS) -> None:
    """Print the state of one."""
    row = listed_facts(with_library(lambda skills: skills.get(name), form))
    print_result([row], f"{name} {row['version']} is {row['state']}", as_json=as_json)


def _local(source: str) -> tuple[Files, str]:
    """The files and the path of a folder; for other sources no files, and the link or the text of a SKILL.md."""
    if source == "-":
        return {}, sys.stdin.read()
    if source.startswith("https://"):
        return {}, source
    path = Path(source).resolve()
    with explained(f"{source[:200]} isn't a link, and can't be read"):
        if path.is_dir():
            return read(path.parent, path.name, ()), str(path)
        return {}, path.read_text(encoding="utf-8", errors="replace")


def with_library(work: Callable[[Skills], Awaitable[Result]], form: Form = SKILLS) -> Result:
    """Run `work` with the skills, or by `form` the tool files, of the owner's workspace."""

    async def run(database: Database) -> Result:
        workspace = Workspace(Environment.read(os.environ).workspace)
        return await work(Skills(database, workspace, SystemClock(), guarded_fetch(), form))

    return with_database(run)


def guarded_fetch() -> Fetch:
    """Fetches by the network rules of the configuration."""
    config = load(Environment.read(os.environ).config, os.environ)
    private, web = config.net.private_allow, config.tools.web
    return guarded(lambda: Rules.of(private, web.allow_hosts, web.deny_hosts))


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
