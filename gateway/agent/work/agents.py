"""The registry of agents: the files as they are now, and of a file that went bad the last good version."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from gateway.domain.principals import Label
from gateway.domain.work.trees import MAIN
from gateway.workspace.agents import MAIN_AGENT, AgentFile, BadAgent, read, slugs
from gateway.workspace.files.tree import Workspace

log = structlog.get_logger(__name__)


async def tell_nobody(_text: str) -> None:
    """The log alone is told."""


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """One agent; `problem` is what is wrong with its file, and `agent` then the last good version, if there was one."""

    slug: str
    agent: AgentFile | None
    problem: str = ""

    @property
    def has_file(self) -> bool:
        """Whether a file describes it; of `main` none does."""
        return self.agent is None or bool(self.agent.sha256)


@dataclass
class Agents:
    """Those of one workspace; `tell` hears of a bad file once for each version of it."""

    workspace: Workspace
    tell: Callable[[str], Awaitable[None]] = tell_nobody
    _good: dict[str, AgentFile] = field(default_factory=dict, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)
    _told: set[tuple[str, int]] = field(default_factory=set, init=False)

    async def list_all(self) -> Sequence[ListedAgent]:
        """All of them, `main` first; looks at the files."""
        await self._look()
        names = sorted({*self._good, *self._problems})
        rest = [ListedAgent(name, self._good.get(name), self._problems.get(name, "")) for name in names]
        return [ListedAgent(MAIN, MAIN_AGENT), *rest]

    async def get(self, slug: str) -> AgentFile | None:
        """The agent, if it may work now; looks at the files."""
        found = await self.listed(slug)
        return found.agent if found and found.agent and found.agent.head.is_active else None

    async def listed(self, slug: str) -> ListedAgent | None:
        """Whatever is known of it."""
        return next((each for each in await self.list_all() if each.slug == slug), None)

    async def usable(self) -> Sequence[AgentFile]:
        """Those that may work now."""
        return [each.agent for each in await self.list_all() if each.agent and each.agent.head.is_active]

    async def trusted(self) -> Sequence[AgentFile]:
        """Those that may work now beside `main`, and whose files are the owner's words."""
        return [agent for agent in await self.usable() if agent.sha256 and await self.label(agent) is Label.OWNER]

    async def label(self, agent: AgentFile | None) -> Label:
        """How far the words of its file are trusted."""
        if agent is None or not agent.sha256:
            return Label.OWNER
        return await self.workspace.labels.of(agent.path, agent.sha256)

    async def _look(self) -> None:
        found = await asyncio.to_thread(slugs, self.workspace)
        self._good = {slug: agent for slug, agent in self._good.items() if slug in found}
        self._problems = {}
        for slug, changed_at in found.items():
            try:
                agent = await read(self.workspace, slug)
            except BadAgent as error:
                await self._bad(slug, changed_at, str(error))
            else:
                if agent is not None:
                    self._good[slug] = agent

    async def _bad(self, slug: str, changed_at: int, why: str) -> None:
        self._problems[slug] = why
        if (slug, changed_at) in self._told:
            return
        self._told.add((slug, changed_at))
        kept = "its last good version is used" if slug in self._good else "it can't be used"
        log.warning("agent.bad", slug=slug, why=why)
        await self.tell(f"The file of the agent {slug[:80]!r} is wrong, so {kept}: {why}")
