"""The table of all commands, and the command line that is built of it.

Commands are imported when they run, so that `--help` and completion load none of them.
"""

import ast
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import find_spec
from itertools import groupby, islice
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

Run = Callable[..., object]
MAY_BE_EMPTY = "VALUE"
_OPTION = re.compile(r"--?[A-Za-z][^\s=]*(=.*)?", re.DOTALL)


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


_APPROVALS = Group(
    "Approve or deny the agent's requests.",
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
    app = parser(about, COMMANDS, completion=True)
    app.callback()(_begin)
    heading = ""
    for name, entry in COMMANDS.items():
        heading = _HEADINGS.get(name, heading)
        if isinstance(entry, Group):
            group = parser(entry.about, entry.targets)
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
    app.command(name, cls=LazyCommand, help=summary(target), rich_help_panel=heading)(deferred(target))


def parser(about: str, commands: Iterable[str] = (), *, completion: bool = False) -> typer.Typer:
    """A command line to which these commands are added; without one named, `list` runs if there is one."""
    return typer.Typer(
        help=about,
        cls=type("Group", (CommandGroup,), {"order": tuple(commands)}),
        no_args_is_help=True,
        add_completion=completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class CommandGroup(TyperGroup):
    """A group of commands, which help lists in `order`, below their headings; without one named, `list` runs."""

    order: Sequence[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with `list` before options that follow no command."""
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, list(args) if named or "list" not in self.commands else ["list", *args])

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the commands of each heading, in columns that are the same for all."""
        width = max(map(len, self.order))
        lines = [(f"{name:{width}}", self.commands[name]) for name in self.order]
        for heading, rows in groupby(lines, lambda row: getattr(row[1], "rich_help_panel", None)):
            with formatter.section(heading or "Commands"):
                formatter.write_dl([(name, one.get_short_help_str(formatter.width - 6 - width)) for name, one in rows])


class LazyCommand(TyperCommand):
    """A command whose callback returns the function that it stands for."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """The context of the command that is made of the loaded function."""
        assert self.callback is not None, "each command has one"
        app = parser("")
        app.command(self.name)(self.callback())
        command = typer.main.get_command(app)
        valued = {name for each in command.params if not getattr(each, "is_flag", True) for name in each.opts}
        try:
            context: Any = command.make_context(info_name, texts_last(args, valued), *rest, **extra)
        except typer.BadParameter as error:
            from gateway.config.problems import requirement

            error.message = requirement(error.__cause__) or error.message
            raise
        for each in command.params:
            if isinstance(each, TyperArgument) and each.metavar != MAY_BE_EMPTY:
                _require_words(context, each)
        return context


def _require_words(context: Any, argument: TyperArgument) -> None:
    value = context.params[argument.name]
    texts = value if isinstance(value, list) else [value]
    if value != argument.default and any(isinstance(text, str) and not text.strip() for text in texts):
        raise typer.BadParameter("must not be empty", context, argument)


def texts_last(arguments: Sequence[str], valued: Collection[str]) -> list[str]:
    """The arguments with `--` before texts such as `-5 °C` or `- milk`, which aren't options.

    `valued` are the options that take the argument after them.
    """
    options: list[str] = []
    texts: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            texts += remaining
        elif _OPTION.fullmatch(argument) or argument[:2] in valued:
            options += [argument, *(islice(remaining, 1) if argument in valued else ())]
        else:
            texts.append(argument)
    return [*options, "--", *texts] if any(text.startswith("-") and text != "-" for text in texts) else list(arguments)


def deferred(target: str) -> Callable[[], Run]:
    """A function that imports `module:function` and returns that function."""
    module, _, name = target.partition(":")

    def load() -> Run:
        run: Run = getattr(import_module(_full_name(module)), name)
        return run

    return load


def summary(target: str) -> str:
    """The docstring of `module:function`, read without running its module."""
    module, _, name = target.partition(":")
    spec = find_spec(_full_name(module))
    assert spec is not None, module
    assert isinstance(spec.loader, SourceLoader), module
    body = ast.parse(spec.loader.get_data(spec.origin or "")).body
    (found,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    return ast.get_docstring(found) or ""


def _full_name(module: str) -> str:
    return module if module.startswith("integrations.") else f"gateway.cli.{module}"
