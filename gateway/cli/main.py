"""The table of all commands, and the command line that is built of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import filterfalse
from typing import Annotated

import typer

from gateway.cli.lazy import LazyCommand, deferred, parser


@dataclass(frozen=True, slots=True)
class Group:
    """Commands about one thing, called as `supaclaw <group> <command>`."""

    about: str
    module: str
    commands: str
    """The names, with `=function` behind a name that the function doesn't have, or `=module:function` of another."""

    @property
    def targets(self) -> Mapping[str, str]:
        """The `module:function` of each command."""
        words = (word.partition("=") for word in self.commands.split())
        return {name: of if ":" in of else f"{self.module}:{of or name}" for name, _, of in words}


OLD = frozenset({"reviews", "install", "uninstall", "approvals reject", "reviews reject"})
"""Names that are still understood, but no longer listed."""
_APPROVALS = Group(
    "Approve or deny what the agent asks.",
    "agent.approvals",
    "list=list_reviews show=show_review approve deny reject=deny",
)
COMMANDS: Mapping[str, str | Group] = {
    "chat": "conversation.chat:chat",
    "web": "process.control:web",
    "sessions": Group("List, show and export conversations.", "conversation.sessions", "list=show_all show export"),
    "approvals": _APPROVALS,
    "grants": Group(
        "List or revoke calls that you allowed in advance.",
        "agent.approvals",
        "list=list_grants give=give_grant revoke=revoke_grant",
    ),
    "init": "process.init:init",
    "up": "process.start:up",
    "down": "process.control:down",
    "status": "process.control:status",
    "doctor": "process.doctor:doctor",
    "logs": "process.logs:logs",
    "update": "process.update:update",
    "config": Group("Read, check and change config.json.", "process.config", "schema validate get set"),
    "service": Group("Start the gateway at boot, under systemd.", "process.service", "install uninstall"),
    "tasks": Group(
        "Start, follow and cancel trees of agents in the background.",
        "agent.trees",
        "list=list_tasks show=show_task create follow trace fork compare cancel",
    ),
    "schedules": Group(
        "Manage reminders and recurring tasks.", "agent.schedules", "list=show_all add show run pause resume remove"
    ),
    "agents": Group(
        "Show and check the agents that work in the background.",
        "agent.trees",
        "list=list_agents show=show_agent test=check_agent",
    ),
    "skills": Group(
        "Install, confirm and switch off the agent's skills.",
        "agent.skills",
        "list=show_all show search install update enable disable remove",
    ),
    "tools": Group(
        "Confirm and switch off tools of MCP servers.",
        "agent.mcp_tools",
        "list=show_all show test=check search add confirm disable",
    ),
    "tool-files": Group(
        "Confirm and switch off tools that files declare.",
        "agent.skills",
        "list=list_tool_files show=show_tool_file enable=enable_tool_file disable=disable_tool_file",
    ),
    "heartbeat": "agent.heartbeat:heartbeat",
    "webhooks": Group(
        "Let other programs trigger the agent.",
        "people.tokens",
        "register=register_webhook list=list_webhooks revoke=revoke_webhook",
    ),
    "remember": "storage.search:remember",
    "search": "storage.search:search",
    "memories": Group(
        "List, change and forget memories.", "storage.memories", "list=show_all show edit pin forget export"
    ),
    "owner": Group(
        "Show or set the owner of the gateway.", "people.access", "show=show_owner set=set_owner part=unlink_account"
    ),
    "pairing": Group(
        "List access requests, approve or deny them.",
        "people.access",
        "list=list_requests approve=approve_request deny=deny_request erase=erase_member",
    ),
    "channel": Group("Link an account on a channel without tokens.", "people.channels", "login logout status"),
    "token": Group("Manage API tokens of programs.", "people.tokens", "create list=list_tokens revoke=revoke_token"),
    "files": Group(
        "List, find, edit, sync and vouch for workspace files.",
        "storage.files",
        "list=list_files search=find_lines zip=pack sync=storage.sync:sync get put edit move delete tree unlock vouch",
    ),
    "checkpoints": Group(
        "Save, compare and restore versions of the workspace.",
        "storage.workspace",
        "list=list_checkpoints diff=diff_checkpoint restore=restore_checkpoint create=create_checkpoint",
    ),
    "workspace": Group(
        "Merge a new version's changes into files that you edited.", "storage.workspace", "diff=show_renewals merge"
    ),
    "secrets": Group(
        "Store keys and passwords that the model never sees.",
        "storage.secrets",
        "set=put list=show rotate rm=remove bind confirm recover",
    ),
    "backup": "storage.backup:backup",
    "restore": "storage.backup:restore",
    "export": "storage.export:export",
    "import": "storage.imports:run",
    "worker": "process.start:worker",
    "machines": Group("List the machines on the database, or forget one.", "process.control", "list=show forget"),
    "deploy": Group("Check that a database elsewhere is ready.", "process.deploy", "supabase"),
    "audit": Group(
        "Show who allowed and changed what, and check that record.",
        "agent.approvals",
        "list=list_audit verify=verify_audit",
    ),
    "mcp-serve": "agent.mcp_serve:mcp_serve",
    "replay": "agent.replay:replay",
    "openclaw": Group(
        "Make SupaClaw the memory of an OpenClaw, or remove it.",
        "integrations.openclaw.installer.commands",
        "install uninstall verify=check",
    ),
    "reviews": _APPROVALS,
    "install": "integrations.openclaw.installer.commands:install",
    "uninstall": "integrations.openclaw.installer.commands:uninstall",
    "test": "process.deploy:test",
    "eval": Group("Measure memory on published datasets.", "storage.eval", "locomo longmemeval junk"),
    "version": "process.control:version",
}
"""Each command's `module:function`, whose module is imported when the command runs.

A module is below `gateway.cli`, or is an integration's and has its full name.
"""
_HEADINGS = {
    "chat": "Talk",
    "init": "Run",
    "tasks": "Work",
    "remember": "Remember",
    "owner": "People",
    "files": "Data",
    "worker": "Advanced",
}
"""The headings of `--help`, each by the first command below it."""


def build() -> typer.Typer:
    """Build the command line."""
    about = "Your own AI agent, behind the messengers you already use. `supaclaw up` starts it."
    app = parser(about, filterfalse(OLD.__contains__, COMMANDS), completion=True)
    app.callback()(_begin)
    heading = ""
    for name, entry in COMMANDS.items():
        heading = _HEADINGS.get(name, heading)
        if isinstance(entry, Group):
            group = parser(entry.about, (each for each in entry.targets if f"{name} {each}" not in OLD))
            for command, target in entry.targets.items():
                _add(group, command, target)
            app.add_typer(group, name=name, rich_help_panel=heading)
        else:
            _add(app, name, entry, heading)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        deferred("process.control:version")()()
        raise typer.Exit


def _begin(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Read `.env` before a command runs; help and completion don't need it."""
    from gateway.config.environment import read_env_file

    read_env_file(os.environ)


def _add(app: typer.Typer, name: str, target: str, heading: str | None = None) -> None:
    command = type("Command", (LazyCommand,), {"target": target})
    app.command(name, cls=command, rich_help_panel=heading)(deferred(target))
