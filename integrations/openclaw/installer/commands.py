"""`supaclaw openclaw install`, `uninstall` and `verify`."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import Yes, confirm, flag, option
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.domain.errors import OwnerMustAct
from integrations.openclaw.installer.connection import remote_connection
from integrations.openclaw.installer.installation import Installer, Remover, verify
from integrations.openclaw.installer.openclaw import OpenClaw
from integrations.openclaw.installer.state import Chosen, InstallState, Places

AGENT = "openclaw"
Workspace = Annotated[Path, option("Workspace of OpenClaw's agent.", "DIR")]
State = Annotated[Path | None, option("OpenClaw's state folder (default: $OPENCLAW_STATE_DIR or ~/.openclaw).", "DIR")]


def install(
    workspace: Workspace,
    state: State = None,
    agent: Annotated[str, option("Name of OpenClaw's agent in the memory.", "NAME")] = AGENT,
    shared: Annotated[bool, flag("Let the agent read your own memories, but never change them.", "--shared")] = False,
    hooks: Annotated[bool, flag("Log by HOOK.md hooks, not by the plugin.", "--hooks")] = False,
    force: Annotated[bool, flag("Start again, even after a complete installation.", "--force")] = False,
    dry_run: Annotated[bool, flag("Check, and print what would be changed.", "--dry-run")] = False,
    yes: Yes = False,
) -> None:
    """Make SupaClaw the memory of an OpenClaw.

    After an interruption, run the same command again.
    """
    places, failpoints = _places(workspace, state), _failpoints()
    openclaw = OpenClaw.find(places.state)
    interrupted = None if force else places.load()
    if interrupted and interrupted.status == "complete":
        echo(f"SupaClaw is installed in {places.workspace}; --force installs it again")
        return
    if interrupted and interrupted.status == "uninstalling":
        raise OwnerMustAct("a removal was interrupted; finish it with `supaclaw openclaw uninstall` first")
    remote = remote_connection(places, interactive=not yes)
    current = interrupted or _new_state(openclaw, places, agent, hooks=hooks, shared=shared, remote=remote is not None)
    installer = Installer(openclaw, places, current, failpoints, remote)
    if dry_run:
        installer.preview()
        return
    if not yes and interrupted is None:
        confirm(f"Make SupaClaw the memory of OpenClaw in {places.state}?")
    installer.run()


def uninstall(
    workspace: Workspace,
    state: State = None,
    force: Annotated[bool, flag("Continue if the state file is missing or damaged.", "--force")] = False,
    yes: Yes = False,
) -> None:
    """Remove SupaClaw from an OpenClaw.

    Its files become what they were before the installation; the database keeps its memories.
    """
    places = _places(workspace, state)
    openclaw = OpenClaw.find(places.state)
    try:
        current = places.load()
    except OwnerMustAct:
        if not force:
            raise
        current = None
    if current is None:
        if not force:
            raise OwnerMustAct(f"SupaClaw is not installed in {places.workspace}: there is no {places.file.name}")
        current = _new_state(openclaw, places, AGENT, hooks=True)
    if not yes:
        confirm(f"Remove SupaClaw from OpenClaw in {places.state}?")
    Remover(openclaw, places, current, _failpoints(), echo).run()
    echo("SupaClaw is uninstalled. Restart OpenClaw's gateway. The database keeps OpenClaw's memories.")


def check(workspace: Workspace, state: State = None) -> None:
    """Check that OpenClaw uses SupaClaw as its memory.

    OpenClaw loads the plugin; then a memory is stored, found and forgotten.
    """
    places = _places(workspace, state)
    current = places.load()
    if current is None or current.status != "complete":
        raise OwnerMustAct(f"SupaClaw is incomplete in {places.workspace}; run `supaclaw openclaw install`")
    verify(OpenClaw.find(places.state), places)
    echo(
        "OpenClaw uses SupaClaw: the plugin is loaded in the memory slot, and a memory was stored, found and forgotten"
    )


def _new_state(
    openclaw: OpenClaw, places: Places, agent: str, *, hooks: bool, shared: bool = False, remote: bool = False
) -> InstallState:
    chosen = Chosen(
        workspacePath=str(places.workspace),
        openclawConfigPath=str(openclaw.config),
        stateDir=str(places.state),
        hooks=hooks,
        shared=shared,
        remote=remote,
    )
    return InstallState(agentId=agent, config=chosen, startedAt=datetime.now(UTC))


def _places(workspace: Path, state: Path | None) -> Places:
    folder = workspace.expanduser().resolve()
    if not folder.is_dir():
        raise OwnerMustAct(f"{folder} is not a folder; pass the workspace of OpenClaw's agent as --workspace")
    state = state or Path(os.environ.get("OPENCLAW_STATE_DIR") or "~/.openclaw")
    return Places(folder, state.expanduser().resolve())


def _failpoints() -> Failpoints:
    return Failpoints(Environment.read(os.environ).fail)
