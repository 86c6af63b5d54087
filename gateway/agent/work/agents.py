"""The registry of agents: their files, and the last good version of a file that is invalid now."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from gateway.domain.principals import Label
from gateway.domain.work.trees import MAIN
from gateway.workspace.agents import MAIN_AGENT, AgentFile, BadAgent, read, slugs
from gateway.workspace.files.tree import Workspace

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """An agent. If its file is invalid, `problem` says why and `agent` is the last good version, or None."""

    slug: str
    agent: AgentFile | None
    problem: str = ""

    @property
    def has_file(self) -> bool:
        """Whether a file describes it; `main` has none."""
        return self.agent is None or bool(self.agent.sha256)


@dataclass
class Agents:
    """The agents of one workspace. `tell` reports each version of an invalid file once; None: only the log does."""

    workspace: Workspace
    tell: Callable[[str], Awaitable[None]] | None = None
    _good: dict[str, AgentFile] = field(default_factory=dict, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)
    _reported: set[tuple[str, int]] = field(default_factory=set, init=False)

    async def list_all(self) -> Sequence[ListedAgent]:
        """All agents, `main` first, from their current files."""
        await self._reload()
        names = sorted({*self._good, *self._problems})
        rest = [ListedAgent(name, self._good.get(name), self._problems.get(name, "")) for name in names]
        return [ListedAgent(MAIN, MAIN_AGENT), *rest]

    async def get(self, slug: str) -> AgentFile | None:
        """The agent with this slug, if it is active."""
        found = await self.listed(slug)
        return found.agent if found and found.agent and found.agent.head.is_active else None

    async def listed(self, slug: str) -> ListedAgent | None:
        """The agent with this slug, even if its file is invalid."""
        return next((each for each in await self.list_all() if each.slug == slug), None)

    async def usable(self) -> Sequence[AgentFile]:
        """The active agents."""
        return [each.agent for each in await self.list_all() if each.agent and each.agent.head.is_active]

    async def offered(self, label: Label) -> Sequence[AgentFile]:
        """The active agents whose files a run with this label may hear of: those that it is trusted no more than."""
        return [agent for agent in await self.usable() if await self.label(agent) <= label]

    async def trusted(self) -> Sequence[AgentFile]:
        """The active agents except `main` whose files the owner wrote."""
        return [agent for agent in await self.offered(Label.OWNER) if agent.sha256]

    async def label(self, agent: AgentFile | None) -> Label:
        """The trust label of its file."""
        if agent is None or not agent.sha256:
            return Label.OWNER
        return await self.workspace.labels.of(agent.path, agent.sha256)

    async def _reload(self) -> None:
        await self.workspace.settle()
        found = await asyncio.to_thread(slugs, self.workspace)
        self._good = {slug: agent for slug, agent in self._good.items() if slug in found}
        self._problems = {}
        for slug, changed_at in found.items():
            try:
                agent = await read(self.workspace, slug)
            except BadAgent as error:
                await self._report(slug, changed_at, str(error))
            else:
                if agent is not None:
                    self._good[slug] = agent

    async def _report(self, slug: str, changed_at: int, why: str) -> None:
        self._problems[slug] = why
        if (slug, changed_at) in self._reported:
            return
        self._reported.add((slug, changed_at))
        kept = "its last good version is used" if slug in self._good else "it can't be used"
        log.warning("agent.bad", slug=slug, why=why)
        if self.tell is not None:
            await self.tell(f"The file of the agent {slug[:80]!r} is wrong, so {kept}: {why}")
