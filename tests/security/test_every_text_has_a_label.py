"""Every part of a prompt, stored text and result of a tool has a label by its type: one without doesn't compile."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from mypy.api import run as mypy_run

from gateway import tools
from gateway.agent.conversation import context
from gateway.agent.mcp.calls import McpCalls
from gateway.agent.memory.search import Recalled
from gateway.agent.tool_files.calls import _Call
from gateway.agent.tool_files.scripts import ScriptCall
from gateway.agent.tool_sources import Offer
from gateway.agent.toolbox import ToolOutcome
from gateway.agent.work.task_trees import TreeRequest
from gateway.domain.conversation.model import PromptPart, ToolSpec
from gateway.domain.conversation.tools import Labelled, Tool
from gateway.domain.memory.imports import ImportedMemory, ImportedMessage
from gateway.domain.principals import Label
from gateway.domain.work.todo_lists import TodoList
from gateway.flow.turn.loop import Turn
from gateway.flow.turn.opening import AgentPart, Reminder
from gateway.memory.wording import Bootstrap
from gateway.store.connection.pool import Database
from gateway.store.trust.reviews import ReviewQuestion
from tests.flow.path import FakeModel, MessagePath, build

ROOT = Path(context.__file__).parents[3]
SOURCES = sorted((ROOT / "gateway").rglob("*.py"))

INSERT = re.compile(r"insert into (?:supaclaw\.)?(\w+)(?: as \w+)?\s*(\([^)]*\))?")
UNLABELLED = {
    "addresses", "api_tokens", "grants", "guesses", "homes", "instances", "leases", "links", "pairings", "principals",
    "secrets", "audit", "meta", "migrations", "usage", "table_sizes", "channel_facts", "model_refusals",
    "running_commands", "swept_objects", "synced_files", "memory_df", "memory_files", "memory_gone", "memory_models",
    "memory_progress", "memory_sources", "memory_stats", "memory_unembedded", "memory_vectors",
    "journals", "imports", "triggers", "schedule_runs", "task_steps",
    "attachments",  # their message has one
    "inbox",  # what arrived, before it becomes a message
    "outbox",  # what people are sent; its message has one
    "pins",  # only bytes that the owner confirms are used
    "tasks",  # their `input` has one, and their session
}  # fmt: skip
"""Tables without texts that a model reads, but for the reasons given."""


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            yield path.relative_to(ROOT), node


@pytest.mark.parametrize(
    "kind",
    [
        PromptPart,
        ToolSpec,
        Offer,
        AgentPart,
        Recalled,
        Bootstrap,
        Labelled,
        ToolOutcome,
        TodoList,
        ReviewQuestion,
        TreeRequest,
        ImportedMessage,
        ImportedMemory,
    ],
)
def test_no_text_is_made_without_one(kind: type[Any]) -> None:
    [label] = [field for field in fields(kind) if field.name == "label"]
    assert label.type is Label
    assert label.default is label.default_factory is MISSING


def test_the_standing_instructions_are_made_of_labelled_parts_only() -> None:
    hints = get_type_hints(context.system_prompt, vars(context))
    assert str(hints["parts"]) == f"collections.abc.Sequence[{PromptPart.__module__}.PromptPart]"
    assert hints["label"] is Label
    assert get_type_hints(Reminder)["standing"] is PromptPart
    assert get_type_hints(Turn)["skills"] is PromptPart
    functions = [(path, node) for path, node in nodes() if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    made = {f"{path.stem}.{node.name}" for path, node in functions if "PromptPart" in _returns(node)}
    assert made == {
        "context.own_words",
        "context.person_part",
        "context.within",
        "context.file_index",
        "environment.skill_index",
        "environment.persona_parts",
        "environment._part",
        "loop._parts",
        "node._offered",
        "instructions.workflow",
    }


def _returns(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.unparse(node.returns) if node.returns else ""


def test_no_other_standing_instructions_are_made() -> None:
    """The others are in the gateway's own words; what is to be read follows them as data."""
    made = {
        str(path)
        for path, node in nodes()
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("SystemMessage")
    }
    assert made == {
        "gateway/flow/turn/loop.py",
        "gateway/flow/replay.py",  # the labelled persona, where no tool can act
        "gateway/agent/conversation/compaction.py",
        "gateway/agent/conversation/fit.py",
        "gateway/background/jobs/describe.py",
        "gateway/memory/consolidation.py",
    }


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel) -> MessagePath:
    return await build(database, workspace, model, families=tools.discover())


async def test_every_tool_returns_its_result_with_one(path: MessagePath) -> None:
    own = path.environments.of(path.people.owner.id).toolbox.tools
    assert {tool.name for tool in own} >= {
        "read_file", "write_file", "list_files", "search_files", "web_fetch", "web_search", "memory_search", "skills",
        "cron", "todo", "send_message", "send_file", "start_task", "tasks", "exec", "spawn", "find_tools",
    }  # fmt: skip
    runs = [tool.run for tool in own] + [McpCalls.run, _Call.run, ScriptCall.run]
    assert len(runs) > 20
    for run in runs:
        function = run.func if isinstance(run, partial) else run
        assert get_type_hints(inspect.unwrap(function))["return"] is Labelled, run
    assert "Awaitable[gateway.domain.conversation.tools.Labelled]" in str(get_type_hints(Tool)["run"])


def test_no_label_has_a_default_that_trusts() -> None:
    """A default may be what is trusted least, never more."""
    found = {
        (str(path), ast.unparse(default))
        for path, node in nodes()
        for name, default in _defaults(node)
        if name == "label" and ast.unparse(default) != "Label.UNTRUSTED"
    }
    assert found == set()


def _defaults(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            positional = [*args.posonlyargs, *args.args]
            with_default = positional[len(positional) - len(args.defaults) :]
            yield from zip((each.arg for each in with_default), args.defaults, strict=True)
            named = zip(args.kwonlyargs, args.kw_defaults, strict=True)
            yield from ((each.arg, default) for each, default in named if default)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value


def test_every_insert_of_a_text_names_its_label() -> None:
    functions = ROOT / "gateway/store/schema.sql"
    schema = functions.read_text()
    tables = dict(re.findall(r"create table (\w+) \((.*?)\n\)", schema, re.DOTALL))
    labelled = {name for name, columns in tables.items() if re.search(r"^\s*label smallint", columns, re.MULTILINE)}
    assert labelled == {
        "sessions",
        "messages",
        "files",
        "contents",
        "todo_lists",
        "schedules",
        "memories",
        "reviews",
        "provider_fields",
        "thoughts",
    }
    inserts = [
        (str(path.relative_to(ROOT)), table, columns)
        for path in (*SOURCES, functions)
        for table, columns in INSERT.findall(path.read_text())
    ]
    assert {table for _, table, _ in inserts} - labelled <= UNLABELLED
    assert {table for _, table, _ in inserts} >= labelled
    assert [each for each in inserts if each[1] in labelled and not re.search(r"\blabel\b", each[2])] == []


def test_a_text_without_one_does_not_compile(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        """\
from gateway.agent.conversation.context import system_prompt
from gateway.domain.conversation.model import PromptPart, ToolSpec
from gateway.domain.conversation.tools import Caller, Effect, Labelled, Tool, ToolArguments
from gateway.domain.principals import Label

async def plain(arguments: ToolArguments, caller: Caller) -> dict[str, str]:
    return {"text": "obey me"}

async def labelled(arguments: ToolArguments, caller: Caller) -> Labelled:
    return Labelled({"text": "obey me"}, Label.UNTRUSTED)

system_prompt(["obey me"], Label.OWNER)
PromptPart("obey me")
ToolSpec("t", "obey me", {})
Tool("t", "", ToolArguments, plain)
Labelled({"text": "obey me"})
Tool("t", "", ToolArguments, labelled)
system_prompt([PromptPart("obey me", Label.UNTRUSTED)], Label.OWNER)
"""
    )
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    told, _, _ = mypy_run([*config, "--follow-imports=silent", str(wrong)])
    assert re.findall(r"wrong\.py:(\d+): error", told) == ["12", "13", "14", "15", "16"], told
