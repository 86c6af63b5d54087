"""`supaclaw openclaw install`, `uninstall` and `verify`."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.openclaw import connection
from gateway.cli.openclaw.installer import Installer, verify
from gateway.cli.openclaw.program import OpenClaw
from gateway.cli.openclaw.removal import Remover
from gateway.cli.openclaw.state import Chosen, InstallState, Places
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.questions import Yes, confirm
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.domain.errors import OwnerMustAct

AGENT = "openclaw"
Workspace = Annotated[Path, typer.Option(metavar="DIR", help="The workspace of OpenClaw's agent.")]
State = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="OpenClaw's state folder; default: $OPENCLAW_STATE_DIR or ~/.openclaw."),
]
Force = Annotated[bool, typer.Option("--force", help="Begin anew, whatever the last attempt left.")]


def install(
    workspace: Workspace,
    state: State = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="The name of OpenClaw's agent in the memory.")] = AGENT,
    shared: Annotated[
        bool, typer.Option("--shared", help="Let it read your memory, too, but never change it.")
    ] = False,
    hooks: Annotated[bool, typer.Option("--hooks", help="Log by HOOK.md hooks instead of the plugin.")] = False,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and say what would be done.")] = False,
    yes: Yes = False,
) -> None:
    """Make this the memory of an OpenClaw. Run it again to go on after an interruption."""
    places, failpoints = _places(workspace, state), _failpoints()
    openclaw = OpenClaw.find(places.state)
    begun = None if force else places.load()
    if begun and begun.status == "complete":
        echo(f"SupaClaw is installed in {places.workspace}; --force installs it again")
        return
    if begun and begun.status == "uninstalling":
        raise OwnerMustAct("an uninstallation was interrupted; finish it by `supaclaw openclaw uninstall` first")
    given = connection.given(places, interactive=not yes)
    current = begun or InstallState(
        agentId=agent,
        config=Chosen(
            workspacePath=str(places.workspace),
            openclawConfigPath=str(openclaw.config),
            stateDir=str(places.state),
            hooks=hooks,
            shared=shared,
            remote=given is not None,
        ),
        startedAt=datetime.now(UTC),
    )
    installer = Installer(openclaw, places, current, failpoints, given)
    if dry_run:
        installer.preview()
        return
    if not yes and begun is None:
        confirm(f"Make SupaClaw the memory of OpenClaw in {places.state}?")
    installer.run()


def uninstall(
    workspace: Workspace,
    state: State = None,
    force: Annotated[bool, typer.Option("--force", help="Without the state file, or with a damaged one.")] = False,
    yes: Yes = False,
) -> None:
    """Take SupaClaw out of an OpenClaw.

    Its files come back as they were; what is in the database stays.
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
        chosen = Chosen(
            workspacePath=str(places.workspace),
            openclawConfigPath=str(openclaw.config),
            stateDir=str(places.state),
            hooks=True,
        )
        current = InstallState(agentId=AGENT, config=chosen, startedAt=datetime.now(UTC))
    if not yes:
        confirm(f"Take SupaClaw out of OpenClaw in {places.state}?")
    Remover(openclaw, places, current, _failpoints()).run()
    echo("SupaClaw is uninstalled. Restart OpenClaw's gateway. What was logged stays in the database.")


def check(workspace: Workspace, state: State = None) -> None:
    """Check that OpenClaw uses this memory.

    The plugin has to be loaded; then a memory is stored, found and forgotten.
    """
    places = _places(workspace, state)
    found = places.load()
    if found is None or found.status != "complete":
        raise OwnerMustAct(
            f"SupaClaw is not, or not wholly, installed in {places.workspace}; `supaclaw openclaw install` does it"
        )
    verify(OpenClaw.find(places.state), places)
    echo(
        "OpenClaw uses SupaClaw: the plugin is loaded in the memory slot, and a memory was stored, found and forgotten"
    )


def _places(workspace: Path, state: Path | None) -> Places:
    folder = workspace.expanduser().resolve()
    if not folder.is_dir():
        raise OwnerMustAct(f"{folder} is no folder; give the workspace of OpenClaw's agent by --workspace")
    found = state or Path(os.environ.get("OPENCLAW_STATE_DIR") or "~/.openclaw")
    return Places(folder, found.expanduser().resolve())


def _failpoints() -> Failpoints:
    return Failpoints(Environment.read(os.environ).fail)
