"""`supaclaw skills`: what the agent can look up for certain tasks, and the owner's word on it."""

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeVar

import typer

from gateway.agent.skills.library import SKILLS, Form, Listed, Skills
from gateway.agent.skills.showing import described, undecided
from gateway.agent.skills.sources import guarded
from gateway.cli.console import echo
from gateway.cli.database import with_database
from gateway.cli.output import AsJson, print_rows
from gateway.cli.questions import confirm
from gateway.config.clock import SystemClock
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.domain.diff import legible
from gateway.domain.errors import OwnerMustAct
from gateway.net.rules import Rules
from gateway.store.pins import Pin
from gateway.store.pool import Database
from gateway.workspace.skills.folder import Files, digest, read
from gateway.workspace.tree import Workspace

Result = TypeVar("Result")

COLUMNS = ("name", "version", "state", "findings", "description")
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `supaclaw skills list` shows it.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
Despite = Annotated[bool, typer.Option("--despite-findings", help="Confirm it despite severe findings.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One skill."""

    name: str
    version: str
    state: str
    description: str
    source: str
    sha256: str
    about: dict[str, str]
    files: list[str]
    findings: list[str]
    problem: str
    waiting: str

    @classmethod
    def of(cls, found: Listed) -> Self:
        """As a program reads it."""
        look, skill = found.look, found.look.skill
        return cls(
            found.name,
            skill.version if skill else "",
            found.state.value,
            skill.description if skill else look.problem,
            found.source,
            look.sha256,
            dict(skill.about) if skill else {},
            [path for path, _ in look.sizes],
            [str(finding) for finding in look.findings],
            look.problem,
            found.staged.sha256 if found.staged else "",
        )


def show_all(as_json: AsJson = False) -> None:
    """List the skills, and which of them are on."""
    rows = [Row.of(each) for each in with_library(lambda skills: skills.list_all())]
    print_rows(rows, COLUMNS, as_json=as_json, none="No skills. `supaclaw skills install LINK` installs one.")


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a skill, its scan and the changes since you confirmed it."""

    async def read_one(skills: Skills) -> tuple[Listed, str]:
        return await skills.get(name), described(*await undecided(skills, name))

    found, text = with_library(read_one)
    row = Row.of(found)
    waits = "\na new version is waiting: `supaclaw skills enable` confirms it\n" if row.waiting else ""
    print_rows([row], COLUMNS, as_json=True) if as_json else echo(f"{name} is {row.state}\n{waits}{legible(text)}")


def install(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A GitHub link, a folder, a SKILL.md, or -.")],
    yes: Yes = False,
    despite_findings: Despite = False,
    as_json: AsJson = False,
) -> None:
    """Install a skill, once you have seen it."""

    async def stage(skills: Skills) -> tuple[Pin, str]:
        files, origin = _local(source)
        pin, found = await (skills.stage_files(files, origin) if files else skills.stage(origin))
        return pin, described(found, await skills.on_disk(pin.name), pin.source)

    pin, text = with_library(stage)
    confirm_shown(pin.name, pin.sha256, text, yes, despite_findings, as_json)


def enable(name: Name, yes: Yes = False, despite_findings: Despite = False, as_json: AsJson = False) -> None:
    """Confirm a skill, or its new version, and switch it on."""
    shown = with_library(lambda skills: undecided(skills, name))
    confirm_shown(name, digest(shown[0]), described(*shown), yes, despite_findings, as_json)


def disable(name: Name, as_json: AsJson = False) -> None:
    """Switch a skill off; its files stay."""
    with_library(lambda skills: skills.disable(name))
    print_one(name, as_json)


def remove(name: Name, yes: Yes = False) -> None:
    """Delete a skill and its files."""
    if not yes:
        _ask(f"Delete the skill {name} and its files?")
    with_library(lambda skills: skills.remove(name))
    echo(f"removed {name}")


def confirm_shown(
    name: str, sha256: str, text: str, yes: bool, despite_findings: bool, as_json: bool, form: Form = SKILLS
) -> None:
    """Ask, after showing all of it, and switch on exactly that."""
    if not yes:
        echo(legible(text))
        _ask(f"May the agent follow {name} like your own instructions?")
    with_library(lambda skills: skills.confirm(name, sha256, despite_findings=despite_findings), form)
    print_one(name, as_json, form)


def print_one(name: str, as_json: bool, form: Form = SKILLS) -> None:
    """What state it is in."""
    row = Row.of(with_library(lambda skills: skills.get(name), form))
    print_rows([row], COLUMNS, as_json=True) if as_json else echo(f"{name} {row.version} is {row.state}")


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise OwnerMustAct("review it with `supaclaw skills show`; then add --yes")
    confirm(question)


def _local(source: str) -> tuple[Files, str]:
    """The files of a folder or a SKILL.md on this machine, if it is one; else what may be a link or a text."""
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
    """Do it with those of the owner's workspace."""

    async def run(database: Database) -> Result:
        environment = Environment.read(os.environ)
        config = load(environment.config, os.environ)
        private, web = config.net.private_allow, config.tools.web
        fetch = guarded(lambda: Rules.of(private, web.allow_hosts, web.deny_hosts))
        return await work(Skills(database, Workspace(environment.workspace), SystemClock(), fetch, form))

    return with_database(run)
