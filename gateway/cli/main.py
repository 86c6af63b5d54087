"""Every command and its name, on one screen."""

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
    """The command that runs where none is named; None: the help is shown."""


COMMANDS: Mapping[str, str | Group] = {
    "init": "process.init:init",
    "up": "process.up:up",
    "worker": "process.worker:worker",
    "machines": Group(
        "List the machines on this database, forget one that is gone.",
        {"list": "process.machines:show", "forget": "process.machines:forget"},
        default="list",
    ),
    "deploy": Group("Check that a database elsewhere is ready.", {"supabase": "process.deploy:supabase"}),
    "chat": "conversation.chat:chat",
    "down": "process.down:down",
    "status": "process.status:status",
    "doctor": "process.doctor:doctor",
    "logs": "process.logs:logs",
    "web": "process.web:web",
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
        {"show": "people.owner:show", "set": "people.owner:set", "part": "people.owner:part"},
    ),
    "pairing": Group(
        "List access requests, approve or deny them.",
        {"list": "people.pairing:show", "approve": "people.pairing:approve", "deny": "people.pairing:deny"},
    ),
    "token": Group(
        "Manage the API tokens of programs.",
        {"create": "people.token:create", "list": "people.token:show", "revoke": "people.token:revoke"},
    ),
    "webhooks": Group(
        "Let other programs trigger the agent.",
        {"register": "work.webhooks:register", "list": "work.webhooks:show", "revoke": "work.webhooks:revoke"},
    ),
    "schedules": Group(
        "Manage reminders and recurring tasks.",
        {
            "list": "work.schedules:show_all",
            "add": "work.schedules:add",
            "show": "work.schedules:show",
            "run": "work.schedules:run",
            "pause": "work.schedules:pause",
            "resume": "work.schedules:resume",
            "remove": "work.schedules:remove",
        },
    ),
    "tasks": Group(
        "Start, follow and cancel trees of agents in the background.",
        {
            "list": "work.tasks:show_all",
            "create": "work.tasks:create",
            "show": "work.tasks:show",
            "follow": "work.tasks:follow",
            "trace": "work.tasks:trace",
            "fork": "work.tasks:fork",
            "compare": "work.tasks:compare",
            "cancel": "work.tasks:cancel",
        },
        default="list",
    ),
    "agents": Group(
        "Show and check the agents that work in the background.",
        {"list": "work.agents:show_all", "show": "work.agents:show", "test": "work.agents:check"},
        default="list",
    ),
    "reviews": Group(
        "Approve or deny the agent's requests.",
        {
            "list": "work.reviews:show_all",
            "show": "work.reviews:show",
            "approve": "work.reviews:approve",
            "deny": "work.reviews:deny",
            "reject": "work.reviews:deny",
        },
    ),
    "skills": Group(
        "Install, confirm and switch off the agent's skills.",
        {
            "list": "work.skills:show_all",
            "show": "work.skills:show",
            "install": "work.skills:install",
            "enable": "work.skills:enable",
            "disable": "work.skills:disable",
            "remove": "work.skills:remove",
        },
        default="list",
    ),
    "tools": Group(
        "Confirm and switch off tools of MCP servers.",
        {
            "list": "work.tools:show_all",
            "show": "work.tools:show",
            "test": "work.tools:check",
            "add": "work.tools_add:add",
            "confirm": "work.tools:confirm",
            "disable": "work.tools:disable",
        },
        default="list",
    ),
    "tool-files": Group(
        "Confirm and switch off tools that files of the workspace declare.",
        {
            "list": "work.tool_files:show_all",
            "show": "work.tool_files:show",
            "enable": "work.tool_files:enable",
            "disable": "work.tool_files:disable",
        },
        default="list",
    ),
    "grants": Group(
        "List or revoke calls that you allowed in advance.",
        {"list": "work.grants:show_all", "give": "work.grants:give", "revoke": "work.grants:revoke"},
    ),
    "audit": Group(
        "Show who allowed and changed what, and check that record.",
        {"list": "work.audit:show_all", "verify": "work.audit:verify"},
    ),
    "heartbeat": "work.heartbeat:heartbeat",
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
        "List, find, fetch, edit, move, sync and vouch for workspace files.",
        {
            "list": "storage.files:show",
            "get": "storage.files:get",
            "vouch": "storage.files:vouch",
            "tree": "storage.editing:tree",
            "put": "storage.editing:put",
            "edit": "storage.editing:edit",
            "search": "storage.workspace_files:find",
            "move": "storage.workspace_files:move",
            "delete": "storage.workspace_files:delete",
            "zip": "storage.workspace_files:pack",
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
            "list": "storage.checkpoints:show",
            "diff": "storage.checkpoints:diff",
            "restore": "storage.checkpoints:restore",
            "create": "storage.checkpoints:create",
        },
    ),
    "workspace": Group(
        "Merge a new version's changes into files that you edited.",
        {"diff": "storage.workspace:diff", "merge": "storage.workspace:merge"},
    ),
    "channel": Group(
        "Link an account on a channel without tokens.",
        {"login": "people.channel:login", "logout": "people.channel:logout", "status": "people.channel:status"},
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
    "remember": "storage.remember:remember",
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
    "mcp-serve": "work.mcp_serve:mcp_serve",
    "openclaw": Group(
        "Make this the memory of an OpenClaw, or take it out again.",
        {
            "install": "openclaw.commands:install",
            "uninstall": "openclaw.commands:uninstall",
            "verify": "openclaw.commands:check",
        },
    ),
    "install": "openclaw.commands:install",
    "uninstall": "openclaw.commands:uninstall",
    "test": "process.test:test",
    "backup": "storage.backup:backup",
    "restore": "storage.backup:restore",
    "export": "storage.export:export",
    "version": "process.version:version",
}
"""Where each command is, as `module:function`; its module is imported when it runs."""


def build(commands: Mapping[str, str | Group] = COMMANDS) -> typer.Typer:
    """The command line, ready to be called."""
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
        deferred("process.version:version")()()
        raise typer.Exit


def _begin(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Read `.env` before a command runs; help and completion do without."""
    from gateway.config.environment import read_env_file

    read_env_file(os.environ)


def _add(app: typer.Typer, name: str, target: str) -> None:
    app.command(name, cls=LazyCommand, help=summary(target))(deferred(target))
