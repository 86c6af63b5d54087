"""The whole web on a real port, over the real path of a message; only the model is scripted."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import httpx
import pytest

from gateway.agent.limits import Limits
from gateway.app.backend import refreshed_toolbox
from gateway.background.cpu.executor import Cpu, ScratchFolder, run_alone
from gateway.background.cpu.extraction import LockedFiles
from gateway.config.editing.editor import ConfigEditor
from gateway.config.environment import Environment
from gateway.config.load import parse
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.config.watch import ConfigWatch
from gateway.domain.errors import ConfigError
from gateway.domain.health import HeartbeatOutcome, HeartbeatResult
from gateway.domain.ids import InstanceId
from gateway.domain.memory.memories import no_embedder
from gateway.domain.principals import Principal
from gateway.flow.channels.supervisor import ChannelProbes, ChannelSpec
from gateway.flow.files.checkpoints import Checkpoints
from gateway.flow.people import Pairing
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.flow.unattended.triggers import Triggers
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.store.work import tasks
from gateway.store.work.steps import ModelUse
from gateway.web.backend import (
    Backend,
    ChannelParts,
    ChatParts,
    FileParts,
    HealthParts,
    PageAccess,
    SettingParts,
    StatusReport,
    ToolParts,
    TreeParts,
)
from gateway.web.server import serve
from tests.flow.path import MessagePath, build
from tests.web.scripted import ScriptedModel

LOCAL_TOKEN = "claw_local-token-of-the-tests"
PAGE_NAME = "claw-0123456789abcdef0123.localhost"
MOST = 1024 * 1024
BEARER = {"Authorization": f"Bearer {LOCAL_TOKEN}"}


@dataclass
class Web:
    """A served gateway, and a client of it without credentials."""

    url: str
    port: int
    path: MessagePath
    backend: Backend
    model: ScriptedModel
    client: httpx.AsyncClient

    @property
    def page(self) -> str:
        """Where a browser finds the page."""
        return f"http://{PAGE_NAME}:{self.port}"

    @property
    def at_page(self) -> dict[str, str]:
        """What a browser says of a request of the page's own; no resolver here knows the page's name."""
        return {"Host": f"{PAGE_NAME}:{self.port}", "Origin": self.page}

    @asynccontextmanager
    async def sign_in(self) -> AsyncIterator[httpx.AsyncClient]:
        """A browser: it has a cookie, and says where its requests come from."""
        async with httpx.AsyncClient(base_url=self.url, headers=self.at_page, timeout=60) as browser:
            link = self.backend.access.sign_in_link(self.url)
            answer = await browser.post("/login", json={"secret": link.partition("#t=")[2]})
            assert answer.status_code == 200
            yield browser


class Running:
    """Starts gateways on the test's database, one after another or at once."""

    def __init__(self, database: Database, folder: Path, group: asyncio.TaskGroup) -> None:
        self._database = database
        self._folder = folder
        self._group = group
        self.tasks: list[asyncio.Task[None]] = []
        self.clients: list[httpx.AsyncClient] = []

    async def start(self, *, port: int = 0, instance: InstanceId | None = None, **changes: object) -> "Started":
        model = ScriptedModel()
        path = await build(self._database, self._folder, model, instance, most=MOST)
        async with self._database.connection() as conn:
            owner = (await principals.lock_owner(conn)).principal
        backend = changed(backend_of(path, owner), changes)
        async with self._database.connection() as conn:
            await tasks.died(conn, path.instance)
        listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
        port = listener.getsockname()[1]
        running = [
            self._group.create_task(path.worker.run()),
            self._group.create_task(serve(backend, listener)),
        ]
        self.tasks += running
        url = f"http://127.0.0.1:{port}"
        client = httpx.AsyncClient(base_url=url, timeout=60)
        self.clients.append(client)
        await client.get("/health")
        return Started(Web(url, port, path, backend, model, client), running)


@dataclass
class Started:
    """A gateway with its tasks, so that a test can end it early."""

    web: Web
    tasks: list[asyncio.Task[None]]

    async def stop(self) -> None:
        await self.web.client.aclose()
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


class Still(SystemClock):
    """However slow the machine is, no bucket of guesses fills up meanwhile."""

    def monotonic(self) -> float:
        return 0.0


async def no_beat() -> HeartbeatResult:
    return HeartbeatResult(SystemClock().now(), HeartbeatOutcome.IDLE, "nothing to do")


def no_spec(channel: str) -> ChannelSpec:
    raise ConfigError(f"{channel} is not configured")


def settings_of(folder: Path) -> ConfigEditor:
    """Settings in a file that is not there yet, and that nobody watches."""

    async def rejected(problem: str) -> None:
        raise AssertionError(problem)

    environ = {"SUPACLAW_CONFIG": str(folder / "config.json"), "SUPACLAW_DATA": str(folder / "data")}
    watch = ConfigWatch(folder / "config.json", Config(), lambda text: parse(text, environ), rejected, _keys=dict)
    return ConfigEditor(Environment.read(environ), environ, watch)


def backend_of(path: MessagePath, owner: Principal) -> Backend:
    clock = Still()
    started_at = clock.now()

    async def status() -> StatusReport:
        return StatusReport(
            "1.2.3", started_at, "scripted", {"running": 1}, {"telegram": "open"}, ModelUse(3, 40, 2, 0.5)
        )

    environments = path.environments
    return Backend(
        database=path.database,
        owner=owner,
        clock=clock,
        signals=path.signals,
        access=PageAccess(
            local_token=LOCAL_TOKEN,
            page_name=PAGE_NAME,
            public_url=None,
            allowed_hosts=tuple,
            lets_in=path.people.lets_in,
            links=path.page_links.logins,
            secret_links=path.page_links.secrets,
            clock=clock,
        ),
        chat=ChatParts(
            inbox=path.inbound,
            answers=path.answers,
            live=path.live,
            wordings=lambda: environments.of(owner.id).toolbox.wordings,
            commands={name: command.summary for name, command in path.commands.items()},
            zones=path.zones,
            embedder=no_embedder,
        ),
        files=FileParts(
            data=path.environment.data,
            root=path.workspace,
            workspace=path.workspaces.own,
            uploads=path.uploads,
            checkpoints=Checkpoints(path.workspace, path.workspace.parent / "data", partial(run_alone, seconds=60.0)),
            unlock=LockedFiles(
                path.database, path.workspaces.of, Cpu(), ScratchFolder(path.workspace.parent / "unlock")
            ).unlock,
        ),
        trees=TreeParts(
            control=path.tree_control,
            traces=path.traces,
            triggers=Triggers(
                path.database, owner.id, path.workspaces.own, lambda: ["telegram"], path.signals, path.clock
            ),
            agents=environments.own.agents,
        ),
        tools=ToolParts(
            skills=environments.own.skills,
            tool_files=path.tool_files,
            toolbox=partial(refreshed_toolbox, environments),
            names=lambda: [spec.name for spec in environments.of(owner.id).toolbox.specs],
            switched_off=environments.switched_off,
        ),
        channels=ChannelParts(
            states=lambda: {"telegram": "open"},
            webhooks=dict,
            logins=dict,
            probes=ChannelProbes(no_spec, clock),
            deep_link=lambda _channel, _code: "",
            setup=None,
            pairing=Pairing(path.database),
            unsettled=tuple,
        ),
        settings=SettingParts(
            editor=settings_of(path.workspace.parent),
            secrets=LiveSecrets(Vault(path.database, path.workspace.parent / "data", {}), owner.id, {}),
            variable_of=lambda _key: None,
            model=lambda: None,
            chosen_model=path.current.chosen_model,
            limits=Limits,
        ),
        health=HealthParts(
            status=status,
            healthy=lambda: True,
            waits_for_database=lambda: False,
            findings=tuple,
            update=tuple,
            restart=tuple,
            logs=Path("logs"),
            mask=path.mask,
            jobs=dict,
            beat=no_beat,
        ),
    )


GROUPS = ("access", "chat", "files", "trees", "tools", "channels", "settings", "health")


def changed(backend: Backend, changes: Mapping[str, object]) -> Backend:
    """With other parts than its own, each under its name in its group; a clock is that of all."""
    for name, value in changes.items():
        groups = [group for group in GROUPS if name in {each.name for each in fields(getattr(backend, group))}]
        assert groups or name in ("clock", "signals"), f"no part of the backend is named {name}"
        if name in ("clock", "signals"):
            backend = replace(backend, **{name: value})
        for group in groups:
            backend = replace(backend, **{group: replace(getattr(backend, group), **{name: value})})
    return backend


@pytest.fixture
async def running(database: Database, tmp_path: Path) -> AsyncIterator[Running]:
    folder = tmp_path / "workspace"
    folder.mkdir()
    async with asyncio.TaskGroup() as group:
        running = Running(database, folder, group)
        try:
            yield running
        finally:
            for client in running.clients:
                await client.aclose()
            for task in running.tasks:
                task.cancel()


@pytest.fixture
async def web(running: Running) -> AsyncIterator[Web]:
    started = await running.start()
    yield started.web
    await started.stop()
