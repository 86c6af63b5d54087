"""Agent files: `.agents/agents/<slug>.md`, a head in YAML and the agent's prompt below it."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from gateway.config.problems import explain
from gateway.domain.conversation.tools import look_of
from gateway.domain.errors import SupaclawError
from gateway.domain.text.texts import one_line
from gateway.domain.work.trees import MAIN, MODELS
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.skills.parsing import MAX_NAME, BadSkill, front_matter, is_name, plain_name

FOLDER = ".agents/agents"
MAX_BYTES, MAX_FILES = 64 * 1024, 100


class BadAgent(SupaclawError):
    """A file that describes no agent; the text says why, in one line."""


class AgentSkill(BaseModel, frozen=True, extra="forbid"):
    """A skill of an agent; those of higher priority are named first."""

    name: str
    priority: int = Field(5, ge=0, le=10)


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class AgentHead(BaseModel, frozen=True, extra="forbid"):
    """The head of an agent file; without `tools` or `skills` the agent has all of its person's."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    description: str = Field(min_length=1, max_length=1_024)
    provider: str | None = None
    model: str | None = None
    temperature: float = Field(0.7, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    tools: tuple[str, ...] | None = None
    skills: tuple[Annotated[AgentSkill, BeforeValidator(_named)], ...] | None = None
    budget: float | None = Field(None, gt=0, description="US dollars for one run")
    is_active: bool = True


@dataclass(frozen=True, slots=True)
class AgentFile:
    """An agent as its file says it; `sha256` is of the file's bytes."""

    slug: str
    head: AgentHead
    prompt: str
    sha256: str = ""

    @property
    def path(self) -> str:
        """In the workspace."""
        return f"{FOLDER}/{self.slug}.md"

    @property
    def model(self) -> str | None:
        """The name of its model, with the provider's prefix; that alone for its default. None: the configured one."""
        model, provider = self.head.model, self.head.provider
        if provider is None or (model or "").startswith(f"{provider}/"):
            return model
        return f"{provider}/{model or ''}"

    @property
    def skills(self) -> tuple[str, ...] | None:
        """The names of its skills, the most important first; None: all."""
        if self.head.skills is None:
            return None
        return tuple(skill.name for skill in sorted(self.head.skills, key=lambda skill: -skill.priority))

    @property
    def of_member(self) -> "AgentFile":
        """The same without what only the owner chooses: models, money and skills."""
        owners = {"provider": None, "model": None, "max_tokens": None, "budget": None, "skills": ()}
        return replace(self, head=self.head.model_copy(update=owners))


MAIN_AGENT = AgentFile(MAIN, AgentHead(name="Main", description="The agent that you chat with"), "")


def parse(slug: str, data: bytes) -> AgentFile:
    """Raises `BadAgent`."""
    if not is_name(slug):
        raise BadAgent(f"Its file name must be a-z, 0-9 and single hyphens, at most {MAX_NAME} characters, then .md.")
    if look_of(slug) in map(look_of, (MAIN, *MODELS)):
        raise BadAgent(f"{MAIN} is the agent that people chat with, and {slug} could pass for it; choose another name.")
    if len(data) > MAX_BYTES:
        raise BadAgent(f"It is longer than {MAX_BYTES >> 10} kB.")
    try:
        fields, prompt = front_matter(data.decode(), f"{slug}.md")
        head = AgentHead.model_validate(fields)
    except UnicodeDecodeError as error:
        raise BadAgent("It isn't UTF-8 text.") from error
    except BadSkill as error:
        raise BadAgent(str(error)) from error
    except ValidationError as error:
        raise BadAgent(explain(error, AgentHead)[0][:300]) from error
    return AgentFile(slug, head, prompt, hashlib.sha256(data).hexdigest())


_COUNTERPARTS = """
    Read=read_file Write=write_file Edit=edit_file MultiEdit=edit_file Bash=exec Glob=list_files LS=list_files
    Grep=search_files WebFetch=web_fetch WebSearch=web_search Task=create_subtask Agent=create_subtask TodoWrite=todo"""
_CLAUDE_TOOLS = dict(word.split("=") for word in _COUNTERPARTS.split())


def adapted(name: str, data: bytes) -> tuple[AgentFile, bytes, list[str]]:
    """An agent file of another program, such as Claude Code, as one of ours, and what of its head has no counterpart.

    Tools without one are left out, never widened to all; a model's short name is left to the configuration. Raises
    `BadAgent`.
    """
    try:
        slug, (fields, prompt) = plain_name(name), front_matter(data.decode(), f"{name}.md")
    except (BadSkill, UnicodeDecodeError) as error:
        raise BadAgent(str(error)) from error
    head = {str(key): value for key, value in fields.items() if key in AgentHead.model_fields}
    if "provider" not in head and "/" not in str(head.get("model")):
        head.pop("model", None)
    for key in {"tools", "skills"} & head.keys():
        head[key] = [word.strip() for word in each.split(",")] if isinstance(each := head[key], str) else each
    named = [str(each) for each in tools] if isinstance(tools := head.get("tools", []), list) else []
    lost = [each for each in named if each[:1].isupper() and each not in _CLAUDE_TOOLS]
    if "tools" in head:
        ours = (_CLAUDE_TOOLS.get(each, each.replace("__", "_")) for each in named if each not in lost)
        head["tools"] = list(dict.fromkeys(ours))
    head["description"] = one_line(str(head.get("description", "")), 1_024)
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    whole = "\n".join(["---", *lines, "---", prompt, ""]).encode()
    return parse(slug, whole), whole, [*sorted(str(key) for key in fields.keys() - head.keys()), *lost]


async def read(workspace: Workspace, slug: str) -> AgentFile | None:
    """None if there is no such file; raises `BadAgent`."""
    try:
        data = await workspace.content(f"{FOLDER}/{slug}.md", MAX_BYTES + 1)
    except WorkspaceError as error:
        raise BadAgent(f"It can't be read: {error}") from error
    return None if data is None else parse(slug, data)


def slugs(workspace: Workspace) -> Mapping[str, int]:
    """The file names without .md, with the time of the last change in nanoseconds; the first `MAX_FILES` by name."""
    try:
        with os.scandir(workspace.root / FOLDER) as entries:
            found = {
                entry.name.removesuffix(".md"): entry.stat(follow_symlinks=False).st_mtime_ns
                for entry in entries
                if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False)
            }
    except OSError:
        return {}
    return {slug: found[slug] for slug in sorted(found)[:MAX_FILES]}
