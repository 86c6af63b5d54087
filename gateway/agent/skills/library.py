"""The owner's skills: a folder is on only while its bytes are exactly those that the owner confirmed."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from operator import attrgetter
from threading import Lock
from typing import TypeAlias

from cachetools import LRUCache, cachedmethod

from gateway.agent.skills.sources import Fetch, gather, is_text, no_fetch
from gateway.domain.conversation.diff import difference
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.principals import Label
from gateway.domain.text.texts import first_of, one_line
from gateway.domain.time import Clock
from gateway.store.connection.pool import Database
from gateway.store.trust import pins
from gateway.store.trust.pins import Pin
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.skills import folder
from gateway.workspace.skills.folder import FOLDER, Files, Stamp, digest, pack, skill_of, unpack
from gateway.workspace.skills.parsing import BadSkill, Skill, is_name
from gateway.workspace.skills.scanning import Finding, scan, severe

STAGED_FOR = timedelta(minutes=20)
"""A link is not fetched again for this long, which is longer than its approval stays open."""
INDEXED, SHORT = 50, 200
"""Skills in a prompt, and characters of each description."""
MAX_SCANS = 200
"""Scans that are kept, by the hash of what was scanned."""
INDEX = "=== Skills ===\nBefore a task that one of these is for, call skills with action load and its name."

Scan: TypeAlias = Callable[[Files], tuple[Finding, ...]]


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of confirmed folder: its name, its place in the workspace, its parser."""

    kind: str
    at: tuple[str, ...]
    parse: Callable[[Files], Skill]
    commands: str = "skills"
    """The group of commands on the command line."""


SKILLS = Form("skill", FOLDER, skill_of)


class NotConfirmed(OwnerMustAct):
    """The owner has not confirmed this; the text says why."""


class SkillState(StrEnum):
    """Whether the agent may use a skill."""

    ON = "on"
    OFF = "off"
    CHANGED = "changed"
    NEW = "new"
    MISSING = "missing"
    BROKEN = "broken"
    STAGED = "staged"


@dataclass(frozen=True, slots=True)
class Look:
    """A skill as read from its files; `skill` is None if there is a `problem`."""

    sha256: str = ""
    skill: Skill | None = None
    findings: tuple[Finding, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    problem: str = ""

    @classmethod
    def at(cls, files: Files, name: str = "", form: Form = SKILLS, *, scanned: Scan | None = scan) -> "Look":
        """Read a skill from files; `name` is that of its folder. Never raises. A scan of long texts takes seconds."""
        sizes, sha256 = tuple((path, len(data)) for path, data in sorted(files.items())), digest(files)
        findings = scanned(files) if scanned else ()
        try:
            skill = form.parse(files)
        except BadSkill as error:
            return cls(sha256, None, findings, sizes, str(error))
        misnamed = f"Its head says it is called {skill.name}; rename its folder to that."
        problem = "" if name in ("", skill.name) else misnamed
        return cls(sha256, None if problem else skill, findings, sizes, problem)

    @property
    def severe(self) -> bool:
        """Whether a confirmation must accept severe findings."""
        return severe(self.findings)


@dataclass(frozen=True, slots=True)
class ListedSkill:
    """A skill; `staged` is a version that waits for the owner's confirmation."""

    name: str
    state: SkillState
    look: Look
    source: str = ""
    staged: Pin | None = None


@dataclass
class Skills:
    """The skills of one workspace. Every error is a `SupaclawError` with a text for people."""

    database: Database
    workspace: Workspace
    clock: Clock
    fetch: Fetch = no_fetch
    form: Form = SKILLS
    _seen: dict[tuple[str, bool], tuple[Stamp, Look]] = field(default_factory=dict, init=False)
    _scans: LRUCache[str, tuple[Finding, ...]] = field(default_factory=lambda: LRUCache(MAX_SCANS), init=False)
    _scanning: Lock = field(default_factory=Lock, init=False)

    async def list_all(self) -> list[ListedSkill]:
        """All skills that are on disk, confirmed or staged, by name."""
        rows = await self.database.read(lambda conn: pins.list_all(conn, self.form.kind))
        known = {row.name: row for row in rows if row.state != "staged"}
        staged = {row.name: row for row in rows if row.state == "staged"}
        looks = await asyncio.to_thread(self._looks, folder.names(self.workspace.root, self.form.at))
        every = sorted({*known, *staged, *looks})
        return [_listed(name, looks.get(name), known.get(name), staged.get(name)) for name in every]

    async def get(self, name: str) -> ListedSkill:
        """The skill with this name; raises `BadSkill`."""
        found = next((each for each in await self.list_all() if each.name == name), None)
        return required(found, BadSkill(f"There is no {self.form.kind} {name[:80]!r}."))

    async def index(self) -> str:
        """The list of enabled skills for a prompt, with the same bytes until one changes; "" if none is on."""
        skills = [look.skill for look in await self.on() if look.skill]
        lines = [f"- {skill.name}: {one_line(skill.description, SHORT)}" for skill in skills]
        return "\n".join([INDEX, *first_of(lines, INDEXED, "- and {} more: action list")]) if lines else ""

    async def on(self) -> list[Look]:
        """The enabled skills, by name, without a scan; without a query if there are no folders."""
        names = await asyncio.to_thread(folder.names, self.workspace.root, self.form.at)
        if not names:
            return []
        on = await self.database.read(lambda conn: pins.confirmed(conn, self.form.kind))
        looks = await asyncio.to_thread(self._looks, [name for name in names if name in on], scanned=False)
        return [look for name, look in looks.items() if look.skill and look.sha256 == on[name]]

    async def confirmed(self, name: str) -> Files:
        """The files of an enabled skill, exactly as confirmed; raises `NotConfirmed`."""
        sha256 = (await self.database.read(lambda conn: pins.confirmed(conn, self.form.kind))).get(name)
        files = await self.on_disk(name) if sha256 else {}
        if digest(files) != sha256:
            raise NotConfirmed(f"The {self.form.kind} {name[:80]!r} is not on: only its owner can confirm it.")
        return files

    async def on_disk(self, name: str) -> Files:
        """The files in its folder now; none if there is no folder."""
        try:
            where = self.workspace.root, name, self.form.at
            return await asyncio.to_thread(folder.read, *where) if is_name(name) else {}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise BadSkill(f"{name} can't be read: {error.strerror}.") from error

    async def kept(self, name: str, *, staged: bool) -> Files:
        """The stored files: those confirmed last, or the staged ones; none if there are none."""
        content = await self.database.read(lambda conn: pins.content(conn, self.form.kind, name, staged=staged))
        return await asyncio.to_thread(unpack, content) if content else {}

    async def stage(self, source: str) -> tuple[Pin, Files]:
        """Fetch a skill and store it for the owner's confirmation; a staged link isn't fetched again for 20 minutes."""
        if row := await self.staged(source):
            return row, await self.kept(row.name, staged=True)
        return await self.stage_files(await gather(source, self.fetch), _origin(source))

    async def staged(self, source: str) -> Pin | None:
        """The version of a link that isn't fetched again; None if there is none, or the source isn't a link."""
        rows = await self.database.read(lambda conn: pins.list_all(conn, self.form.kind))
        since, origin = self.clock.now() - STAGED_FOR, _origin(source)
        fresh = (row for row in rows if row.state == "staged" and row.changed_at > since)
        return next((row for row in fresh if row.source == origin != "text"), None)

    async def stage_files(self, files: Files, origin: str) -> tuple[Pin, Files]:
        """Store files for the owner's confirmation."""
        name, sha256, content = self.form.parse(files).name, digest(files), await asyncio.to_thread(pack, files)
        await self.database.run(lambda tx: pins.put(tx, self.form.kind, name, "staged", sha256, content, origin))
        return Pin(self.form.kind, name, "staged", sha256, origin, self.clock.now()), files

    async def confirm(self, name: str, sha256: str, *, despite_findings: bool = False) -> None:
        """Enable exactly these bytes, staged or on disk; severe findings must be accepted with `despite_findings`."""
        files = await self.kept(name, staged=True)
        staged, source = digest(files) == sha256, "workspace"
        if not staged:
            files = await self.on_disk(name)
        look = await asyncio.to_thread(Look.at, files, name, self.form, scanned=self._scanned)
        if look.sha256 != sha256 or not files:
            raise NotConfirmed(f"{name} has changed since you saw it, so nothing was done; review it again.")
        if look.skill is None:
            raise BadSkill(look.problem)
        if look.severe and not despite_findings:
            raise NotConfirmed(f"The scan of {name} has severe findings; confirm that you accept them.")
        if staged:
            source = (await self.get(name)).source
            await self._write(name, files)
        content = await asyncio.to_thread(pack, files)
        await self.database.run(lambda tx: pins.put(tx, self.form.kind, name, "on", sha256, content, source))

    async def disable(self, name: str) -> None:
        """Disable a skill; its files stay."""
        if not await self.database.run(lambda tx: pins.switch_off(tx, self.form.kind, name)):
            raise BadSkill(f"There is no {self.form.kind} {name[:80]!r} that is on.")

    async def remove(self, name: str) -> None:
        """Delete a skill and its records."""
        await self.get(name)
        await self.database.run(lambda tx: pins.remove(tx, self.form.kind, name))
        if is_name(name):
            await asyncio.to_thread(folder.remove, self.workspace.root, name, self.form.at)

    async def dismiss(self, name: str) -> None:
        """Drop the staged version."""
        await self.database.run(lambda tx: pins.unstage(tx, self.form.kind, name))

    @cachedmethod(attrgetter("_scans"), key=lambda _, files: digest(files), lock=attrgetter("_scanning"))
    def _scanned(self, files: Files) -> tuple[Finding, ...]:
        """The findings in these bytes, whatever folder or version they are of."""
        return scan(files)

    def _looks(self, names: Sequence[str], *, scanned: bool = True) -> dict[str, Look]:
        """The readings by name; unchanged folders are not read again."""
        return {name: self._look(name, scanned) for name in names}

    def _look(self, name: str, scanned: bool) -> Look:
        key = name, scanned
        try:
            stamp = folder.stamp(self.workspace.root, name, self.form.at)
            if key not in self._seen or self._seen[key][0] != stamp:
                files = folder.read(self.workspace.root, name, self.form.at)
                self._seen[key] = stamp, Look.at(files, name, self.form, scanned=self._scanned if scanned else None)
            return self._seen[key][1]
        except (BadSkill, WorkspaceError) as error:
            return Look(problem=str(error))
        except OSError as error:
            return Look(problem=f"It can't be read: {error.strerror}.")

    async def _write(self, name: str, files: Files) -> None:
        """Replace the folder. After a crash it differs from the pin, so the skill is off."""
        await asyncio.to_thread(folder.remove, self.workspace.root, name, self.form.at)
        for path, data in files.items():
            await self.workspace.write("/".join((*self.form.at, name, path)), data, Label.OWNER, unlocked=True)


def _origin(source: str) -> str:
    return "text" if is_text(source) else source.strip()[:500]


def _listed(name: str, look: Look | None, pin: Pin | None, staged: Pin | None) -> ListedSkill:
    known = pin or staged
    return ListedSkill(name, _state(look, pin), look or Look(), known.source if known else "", staged)


def _state(look: Look | None, pin: Pin | None) -> SkillState:
    if look is None:
        return SkillState.MISSING if pin else SkillState.STAGED
    if look.skill is None:
        return SkillState.BROKEN
    if pin is None:
        return SkillState.NEW
    return SkillState(pin.state) if look.sha256 == pin.sha256 else SkillState.CHANGED


FINDINGS = 20
TOO_LONG = "too long to show; read the file itself"


def listed_facts(found: ListedSkill) -> dict[str, object]:
    """A skill or a tool file, in the terminal, on the page and for a program."""
    look, skill = found.look, found.look.skill
    return {
        "name": found.name,
        "version": skill.version if skill else "",
        "state": found.state.value,
        "description": skill.description if skill else look.problem,
        "source": found.source,
        "sha256": look.sha256,
        "about": dict(skill.about) if skill else {},
        "files": [path for path, _ in look.sizes],
        "findings": [str(finding) for finding in look.findings],
        "problem": look.problem,
        "waiting": found.staged.sha256 if found.staged else "",
    }


def described_skill(files: Files, before: Files, source: str, form: Form = SKILLS) -> str:
    """A skill in a few lines with the findings of its scan, then every changed file."""
    look = Look.at(files, "", form)
    name, version = (look.skill.name, look.skill.version) if look.skill else ("?", "?")
    state = "unchanged" if files == before else "changed" if before else "new"
    head = f"{form.kind} {name} {version}, {len(files)} file{'s' * (len(files) != 1)}, {state}, from {source}"
    found = first_of([*map(str, look.findings)], FINDINGS, "and {} more findings") or ["the scan found nothing"]
    facts = look.skill.summary() if look.skill else ()
    return "\n".join([head, f"sha256 {look.sha256}", *facts, *found, "", *skill_changes(before, files)])


async def undecided_skill(skills: Skills, name: str) -> tuple[Files, Files, str]:
    """The files that a confirmation would cover (staged, or on disk), those to compare them with, and the source."""
    found = await skills.get(name)
    files = await skills.on_disk(name)
    if found.staged:
        return await skills.kept(name, staged=True), files, found.staged.source
    return files, await skills.kept(name, staged=False), "the workspace"


def skill_changes(before: Files, after: Files) -> Sequence[str]:
    """The difference of each file, SKILL.md first."""
    paths = sorted({*before, *after}, key=lambda path: (path.lower() not in ("skill.md", "tool.md"), path))
    changed = [path for path in paths if before.get(path) != after.get(path)]
    return [_change(path, before.get(path, b""), after.get(path, b"")) for path in changed]


def _change(path: str, before: bytes, after: bytes) -> str:
    try:
        return difference(path, before.decode(), after.decode())
    except UnicodeDecodeError:
        return f"{path}: not text, {len(before):,} bytes before, {len(after):,} now"
    except ToolFailed:
        return f"{path}: {len(before):,} bytes before, {len(after):,} now, {TOO_LONG}"
