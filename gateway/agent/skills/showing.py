"""What a person reads of a skill before they confirm it: what it is, what the scan found, what differs from before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from gateway.agent.skills.library import SKILLS, Form, Listed, Look, Skills
from gateway.domain.conversation.diff import difference
from gateway.domain.conversation.tools import ToolFailed
from gateway.workspace.skills.folder import Files

FINDINGS = 20
TOO_LONG = "too long to show; read the file itself"


@dataclass(frozen=True, slots=True)
class Row:
    """A skill or a tool file, in the terminal, on the page and for a program."""

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
        """From what is known of it."""
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


def described(files: Files, before: Files, source: str, form: Form = SKILLS) -> str:
    """The skill in a few lines and the findings of its scan, then every changed file."""
    look = Look.at(files, "", form)
    name, version = (look.skill.name, look.skill.version) if look.skill else ("?", "?")
    state = "unchanged" if files == before else "changed" if before else "new"
    head = f"{form.kind} {name} {version}, {len(files)} file{'s' * (len(files) != 1)}, {state}, from {source}"
    found = [*map(str, look.findings[:FINDINGS])] or ["the scan found nothing"]
    more = [f"and {len(look.findings) - FINDINGS} more findings"] if len(look.findings) > FINDINGS else []
    facts = look.skill.summary() if look.skill else ()
    return "\n".join([head, f"sha256 {look.sha256}", *facts, *found, *more, "", *changes(before, files)])


async def undecided(skills: Skills, name: str) -> tuple[Files, Files, str]:
    """What a person would confirm, what it differs from, and its source: the version that waits, or what lies there."""
    found = await skills.get(name)
    files = await skills.on_disk(name)
    if found.staged:
        return await skills.kept(name, staged=True), files, found.staged.source
    return files, await skills.kept(name, staged=False), "the workspace"


def changes(before: Files, after: Files) -> Sequence[str]:
    """The difference of each file, SKILL.md first."""
    paths = sorted({*before, *after}, key=lambda path: (path.lower() not in ("skill.md", "tool.md"), path))
    return [
        _change(path, before.get(path, b""), after.get(path, b"")) for path in paths if _differs(path, before, after)
    ]


def _differs(path: str, before: Files, after: Files) -> bool:
    return before.get(path) != after.get(path)


def _change(path: str, before: bytes, after: bytes) -> str:
    try:
        return difference(path, before.decode(), after.decode())
    except UnicodeDecodeError:
        return f"{path}: not text, {len(before):,} bytes before, {len(after):,} now"
    except ToolFailed:
        return f"{path}: {len(before):,} bytes before, {len(after):,} now, {TOO_LONG}"
