"""The table of all commands, and the command line that is built of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from gateway.cli.lazy import LazyCommand, deferred, parser, summary


@dataclass(frozen=True, slots=True)
class Group:
    """Commands about one thing, called as `supaclaw <group> <command>`."""

    about: str
    commands: Mapping[str, str]
    default: str | None = None
    """The command that runs if none is named; None shows the help."""


COMMANDS: Mapping[str, str | Group] = {
    "init": "process.init:init",
    "up": "process.start:up",
    "worker": "process.start:worker",
    "machines": Group(
        "List the machines on the database, or forget one.",
        {"list": "process.machines:show", "forget": "process.machines:forget"},
        default="list",
    ),
    "deploy": Group("Check that a database elsewhere is ready.", {"supabase": "process.deploy:supabase"}),
    "chat": "conversation.chat:chat",
    "down": "process.control:down",
    "status": "process.control:status",
    "doctor": "process.doctor:doctor",
    "logs": "process.logs:logs",
    "web": "process.control:web",
    "config": Group(
        "Read, check and change config.json.",
        {
            "schema": "process.config:schema",
            "validate": "process.config:validate",
            "get": "process.config:get",
            "set": "process.config:set",
        },
    ),
    "owner": Group(
        "Show or set the owner of the gateway.",
        {"show": "people.access:show_owner", "set": "people.access:set_owner", "part": "people.access:unlink_account"},
    ),
    "pairing": Group(
        "List access requests, approve or deny them.",
        {
            "list": "people.access:list_requests",
            "approve": "people.access:approve_request",
            "deny": "people.access:deny_request",
        },
    ),
    "token": Group(
        "Manage the API tokens of programs.",
        {"create": "people.tokens:create", "list": "people.tokens:list_tokens", "revoke": "people.tokens:revoke_token"},
    ),
    "webhooks": Group(
        "Let other programs trigger the agent.",
        {
            "register": "people.tokens:register_webhook",
            "list": "people.tokens:list_webhooks",
            "revoke": "people.tokens:revoke_webhook",
        },
    ),
    "schedules": Group(
        "Manage reminders and recurring tasks.",
        {
            "list": "agent.schedules:show_all",
            "add": "agent.schedules:add",
            "show": "agent.schedules:show",
            "run": "agent.schedules:run",
            "pause": "agent.schedules:pause",
            "resume": "agent.schedules:resume",
            "remove": "agent.schedules:remove",
        },
    ),
    "tasks": Group(
        "Start, follow and cancel trees of agents in the background.",
        {
            "list": "agent.trees:list_tasks",
            "create": "agent.trees:create",
            "show": "agent.trees:show_task",
            "follow": "agent.trees:follow",
            "trace": "agent.trees:trace",
            "fork": "agent.trees:fork",
            "compare": "agent.trees:compare",
            "cancel": "agent.trees:cancel",
        },
        default="list",
    ),
    "agents": Group(
        "Show and check the agents that work in the background.",
        {"list": "agent.trees:list_agents", "show": "agent.trees:show_agent", "test": "agent.trees:check_agent"},
        default="list",
    ),
    "reviews": Group(
        "Approve or deny the agent's requests.",
        {
            "list": "agent.approvals:list_reviews",
            "show": "agent.approvals:show_review",
            "approve": "agent.approvals:approve",
            "deny": "agent.approvals:deny",
            "reject": "agent.approvals:deny",
        },
    ),
    "skills": Group(
        "Install, confirm and switch off the agent's skills.",
        {
            "list": "agent.skills:show_all",
            "show": "agent.skills:show",
            "install": "agent.skills:install",
            "enable": "agent.skills:enable",
            "disable": "agent.skills:disable",
            "remove": "agent.skills:remove",
        },
        default="list",
    ),
    "tools": Group(
        "Confirm and switch off tools of MCP servers.",
        {
            "list": "agent.mcp_tools:show_all",
            "show": "agent.mcp_tools:show",
            "test": "agent.mcp_tools:check",
            "add": "agent.mcp_tools:add",
            "confirm": "agent.mcp_tools:confirm",
            "disable": "agent.mcp_tools:disable",
        },
        default="list",
    ),
    "tool-files": Group(
        "Confirm and switch off tools that files declare.",
        {
            "list": "agent.skills:list_tool_files",
            "show": "agent.skills:show_tool_file",
            "enable": "agent.skills:enable_tool_file",
            "disable": "agent.skills:disable_tool_file",
        },
        default="list",
    ),
    "grants": Group(
        "List or revoke calls that you allowed in advance.",
        {
            "list": "agent.approvals:list_grants",
            "give": "agent.approvals:give_grant",
            "revoke": "agent.approvals:revoke_grant",
        },
    ),
    "audit": Group(
        "Show who allowed and changed what, and check that record.",
        {"list": "agent.approvals:list_audit", "verify": "agent.approvals:verify_audit"},
    ),
    "heartbeat": "agent.heartbeat:heartbeat",
    "sessions": Group(
        "List, show and export conversations (default: list).",
        {
            "list": "conversation.sessions:show_all",
            "show": "conversation.sessions:show",
            "export": "conversation.sessions:export",
        },
        default="list",
    ),
    "files": Group(
        "List, find, edit, sync and vouch for workspace files.",
        {
            "list": "storage.files:list_files",
            "get": "storage.files:get",
            "vouch": "storage.files:vouch",
            "tree": "storage.files:tree",
            "put": "storage.files:put",
            "edit": "storage.files:edit",
            "search": "storage.files:find_lines",
            "move": "storage.files:move",
            "delete": "storage.files:delete",
            "zip": "storage.files:pack",
            "sync": "storage.sync:sync",
        },
    ),
    "eval": Group(
        "Measure memory search on published datasets.",
        {"locomo": "storage.eval:locomo", "longmemeval": "storage.eval:longmemeval"},
    ),
    "checkpoints": Group(
        "Save, compare and restore versions of the workspace.",
        {
            "list": "storage.workspace:list_checkpoints",
            "diff": "storage.workspace:diff_checkpoint",
            "restore": "storage.workspace:restore_checkpoint",
            "create": "storage.workspace:create_checkpoint",
        },
    ),
    "workspace": Group(
        "Merge a new version's changes into files that you edited.",
        {"diff": "storage.workspace:show_renewals", "merge": "storage.workspace:merge"},
    ),
    "channel": Group(
        "Link an account on a channel without tokens.",
        {"login": "people.channels:login", "logout": "people.channels:logout", "status": "people.channels:status"},
    ),
    "service": Group(
        "Start the gateway at boot, under systemd.",
        {"install": "process.service:install", "uninstall": "process.service:uninstall"},
    ),
    "secrets": Group(
        "Store keys and passwords that the model never sees.",
        {
            "set": "storage.secrets:put",
            "list": "storage.secrets:show",
            "rotate": "storage.secrets:rotate",
            "rm": "storage.secrets:remove",
            "bind": "storage.secrets:bind",
            "confirm": "storage.secrets:confirm",
            "recover": "storage.secrets:recover",
        },
    ),
    "remember": "storage.search:remember",
    "search": "storage.search:search",
    "memories": Group(
        "List, change and forget memories.",
        {
            "list": "storage.memories:show_all",
            "show": "storage.memories:show",
            "edit": "storage.memories:edit",
            "pin": "storage.memories:pin",
            "forget": "storage.memories:forget",
            "export": "storage.memories:export",
        },
    ),
    "import": "storage.imports:run",
    "mcp-serve": "agent.mcp_serve:mcp_serve",
    "openclaw": Group(
        "Make SupaClaw the memory of an OpenClaw, or remove it.",
        {
            "install": "integrations.openclaw.installer.commands:install",
            "uninstall": "integrations.openclaw.installer.commands:uninstall",
            "verify": "integrations.openclaw.installer.commands:check",
        },
    ),
    "install": "integrations.openclaw.installer.commands:install",
    "uninstall": "integrations.openclaw.installer.commands:uninstall",
    "test": "process.deploy:test",
    "backup": "storage.backup:backup",
    "restore": "storage.backup:restore",
    "export": "storage.export:export",
    "version": "process.control:version",
}
"""Each command's `module:function`, whose module is imported when the command runs.

A module is below `gateway.cli`, or is an integration's and has its full name.
"""


def build(commands: Mapping[str, str | Group] = COMMANDS) -> typer.Typer:
    """Build the command line."""
    about = "Your own AI agent, behind the messengers you already use. `supaclaw up` starts it."
    app = parser(about, completion=True)
    app.callback()(_begin)
    for name, entry in commands.items():
        if isinstance(entry, Group):
            group = parser(entry.about, default=entry.default)
            for command, target in entry.commands.items():
                _add(group, command, target)
            app.add_typer(group, name=name)
        else:
            _add(app, name, entry)
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


def _add(app: typer.Typer, name: str, target: str) -> None:
    app.command(name, cls=LazyCommand, help=summary(target))(deferred(target))
