"""Every command and its name, on one screen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import typer

from gateway.cli import (
    backup,
    channel,
    chat,
    checkpoints,
    config,
    doctor,
    down,
    eval,
    files,
    heartbeat,
    imports,
    logs,
    mcp_serve,
    memories,
    owner,
    pairing,
    remember,
    reviews,
    schedules,
    search,
    service,
    sessions,
    status,
    token,
    up,
    version,
    web,
    webhooks,
    workspace,
)

Run = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Group:
    """Commands about one thing, called as `supaclaw <group> <command>`."""

    about: str
    commands: Mapping[str, Run]


COMMANDS: Mapping[str, Run | Group] = {
    "up": up.up,
    "chat": chat.chat,
    "down": down.down,
    "status": status.status,
    "doctor": doctor.doctor,
    "logs": logs.logs,
    "web": web.web,
    "config": Group(
        "Read, check and change config.json.",
        {"schema": config.schema, "validate": config.validate, "get": config.get, "set": config.set},
    ),
    "owner": Group("Show or set the owner of the gateway.", {"show": owner.show, "set": owner.set, "part": owner.part}),
    "pairing": Group(
        "List access requests, approve or deny them.",
        {"list": pairing.show, "approve": pairing.approve, "deny": pairing.deny},
    ),
    "token": Group(
        "Manage the API tokens of programs.",
        {"create": token.create, "list": token.show, "revoke": token.revoke},
    ),
    "webhooks": Group(
        "Let other programs trigger the agent.",
        {"register": webhooks.register, "list": webhooks.show, "revoke": webhooks.revoke},
    ),
    "schedules": Group(
        "Manage one-time and recurring work of the agent.",
        {
            "list": schedules.show_all,
            "add": schedules.add,
            "show": schedules.show,
            "run": schedules.run,
            "pause": schedules.pause,
            "resume": schedules.resume,
            "remove": schedules.remove,
        },
    ),
    "reviews": Group(
        "Read and answer the agent's questions.",
        {"list": reviews.show_all, "show": reviews.show, "approve": reviews.approve, "deny": reviews.deny},
    ),
    "heartbeat": heartbeat.heartbeat,
    "sessions": sessions.sessions,
    "files": Group(
        "List, fetch and vouch for files of the workspace.",
        {"list": files.show, "get": files.get, "vouch": files.vouch},
    ),
    "eval": Group(
        "Measure how well memory is searched, on published sets.",
        {"locomo": eval.locomo, "longmemeval": eval.longmemeval},
    ),
    "checkpoints": Group(
        "Save, compare and restore versions of the workspace.",
        {
            "list": checkpoints.show,
            "diff": checkpoints.diff,
            "restore": checkpoints.restore,
            "create": checkpoints.create,
        },
    ),
    "workspace": Group(
        "Files that you edited, and what a new version has for them.",
        {"diff": workspace.diff, "merge": workspace.merge},
    ),
    "channel": Group(
        "Link an account to a channel that has no token.",
        {"login": channel.login, "logout": channel.logout, "status": channel.status},
    ),
    "service": Group(
        "Start the gateway at boot, under systemd.",
        {"install": service.install, "uninstall": service.uninstall},
    ),
    "remember": remember.remember,
    "search": search.search,
    "memories": Group(
        "List, change and forget what is remembered.",
        {
            "list": memories.show_all,
            "show": memories.show,
            "edit": memories.edit,
            "pin": memories.pin,
            "forget": memories.forget,
            "export": memories.export,
        },
    ),
    "import": imports.run,
    "mcp-serve": mcp_serve.mcp_serve,
    "backup": backup.backup,
    "restore": backup.restore,
    "version": version.version,
}


def build(commands: Mapping[str, Run | Group] = COMMANDS) -> typer.Typer:
    """The command line, ready to be called."""
    app = _parser("One AI agent of your own, behind the messengers you already use. `supaclaw up` starts it.")
    for name, entry in commands.items():
        if isinstance(entry, Group):
            group = _parser(entry.about)
            for command, run in entry.commands.items():
                group.command(command)(run)
            app.add_typer(group, name=name)
        else:
            app.command(name)(entry)
    return app


def _parser(about: str) -> typer.Typer:
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
