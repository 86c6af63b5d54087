"""What a member reaches: nothing of the owner's, by any tool, path, command or statement. New ones are found here."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gateway import commands, tools
from gateway.agent.toolbox import Toolbox
from gateway.domain.conversation.model import Attempt, ModelsExhausted, ToolCall
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.flow.labels import ask_to_vouch
from gateway.store.connection.pool import Database
from gateway.store.files import files
from tests.fakes.caller import CALLER
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, call, in_turn, results, said

SECRET = "xyzzy"
"""In every file of the owner's and in what was said to the owner."""
PERSONAL = """select table_name from information_schema.columns join information_schema.tables
                using (table_schema, table_name)
              where table_schema = 'supaclaw' and table_type = 'BASE TABLE' and column_name = 'principal_id'
              order by 1"""


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel) -> MessagePath:
    """With the tools there are, and no others."""
    return await build(database, workspace, model, families=tools.discover())


@pytest.fixture
async def lived_in(path: MessagePath) -> MessagePath:
    """The owner has talked, worked and kept files; the member has said hello."""
    root = path.workspace
    for name in ("secret.md", "uploads/2026/scan.pdf", "uploads/2026/scan.pdf.txt", "memory/INDEX.md", "USER.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{SECRET} {name}")
    path.model.answer = in_turn(
        said(f"{SECRET} first", call("write_file", path="kept.md", content=SECRET)),
        said(f"{SECRET} answer"),
        said("hello yourself", call("write_file", path="mine.md", content="mine")),
        said("that is all"),
    )
    async with path.working():
        await path.ask(f"{SECRET} question")
        await path.ask("hello", sender=MEMBER, chat=MEMBER)
        await path.journal.catch_up()
    path.model.answer = FakeModel().answer
    await path.database.run(lambda tx: ask_to_vouch(tx, path.people.owner.id, {"USER.md": "its hash"}, path.clock))
    return path


async def member_of(path: MessagePath) -> PrincipalId:
    [(member,)] = await path.rows("select id from principals where role = 'member'")
    return PrincipalId(member)


def hostile(path: MessagePath, theirs: Path) -> list[str]:
    """Ways to name the owner's files from a root of one's own, those that exist and those that might."""
    there = [str(p.relative_to(path.workspace)) for p in path.workspace.rglob("*")]
    up = "../" * 12
    ways = [w for p in there for w in (p, f"../../workspace/{p}", f"{path.workspace}/{p}", f"{up}{path.workspace}/{p}")]
    links = ["link/secret.md", "link", "one.md", "root/etc/passwd", f"root{path.workspace}/secret.md"]
    (theirs / "link").symlink_to(path.workspace)
    (theirs / "one.md").symlink_to(path.workspace / "secret.md")
    (theirs / "root").symlink_to("/")
    odd = ["~/secret.md", "~root/.bashrc", "file:///etc/passwd", "a/../../../workspace/secret.md", "..\\secret.md"]
    return [
        *ways,
        *links,
        *odd,
        "/proc/self/cwd/secret.md",
        "/proc/self/environ",
        ".",
        "",
        "..",
        "/",
        "\x00",
        "sessions",
    ]


def values(schema: dict[str, Any], root: dict[str, Any], words: Sequence[str]) -> list[Any]:
    """For every text in a tool's arguments each of the words; for the rest something that fits."""
    if "$ref" in schema:
        return values(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, words)
    if "anyOf" in schema:
        return [value for option in schema["anyOf"] for value in values(option, root, words)]
    if "enum" in schema:
        return list(schema["enum"])
    match schema.get("type"):
        case "string":
            return list(words)
        case "integer" | "number":
            return [schema.get("minimum", 0)]
        case "boolean":
            return [False, True]
        case "array":
            return [[value] for value in values(schema["items"], root, words)]
        case "object":
            given = {name: values(each, root, words) for name, each in schema.get("properties", {}).items()}
            most = max(map(len, given.values()), default=1)
            return [{name: found[n % len(found)] for name, found in given.items()} for n in range(most)]
        case _:
            return [None]


def calls(toolbox: Toolbox, words: Sequence[str]) -> list[ToolCall]:
    return [
        ToolCall(f"{spec.name}-{n}", spec.name, json.dumps(arguments))
        for spec in toolbox.specs
        for n, arguments in enumerate(values(dict(spec.parameters), dict(spec.parameters), words))
    ]


def files_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and not p.is_symlink()}


@pytest.mark.thorough
async def test_no_tool_reads_or_writes_what_is_the_owners(lived_in: MessagePath) -> None:
    home = lived_in.environments.of(await member_of(lived_in))
    owners, before = (
        files_of(lived_in.workspace),
        await lived_in.rows("select path, sha256, label from files order by 1"),
    )
    tried = calls(home.toolbox, hostile(lived_in, home.workspace.root))
    outcomes = [await home.toolbox.run(each, CALLER) for each in tried]
    assert {each.name for each in tried} == {spec.name for spec in home.toolbox.specs}
    assert len(tried) > 100
    assert [o.text for o in outcomes if SECRET in o.text] == []
    assert files_of(lived_in.workspace) == owners
    theirs = await lived_in.rows(
        "select path, sha256, label from files where principal_id = $1 order by 1", lived_in.people.owner.id
    )
    assert [row for row in before if row in theirs] == theirs


async def test_no_tool_tells_what_lies_outside_its_root(lived_in: MessagePath) -> None:
    home = lived_in.environments.of(await member_of(lived_in))
    outcomes = [
        await home.toolbox.run(each, CALLER) for each in calls(home.toolbox, ["/etc/passwd", "/proc/self/environ"])
    ]
    assert not [o.text for o in outcomes if "root:" in o.text or "SUPACLAW" in o.text or "PATH=" in o.text]


@pytest.mark.parametrize("name", sorted(commands.discover()))
async def test_no_command_tells_a_member_what_is_the_owners(lived_in: MessagePath, name: str) -> None:
    [(owners_session,)] = await lived_in.rows(
        "select id from sessions where principal_id = $1", lived_in.people.owner.id
    )
    for argument in ("", "list", "more", "off", "1", SECRET):
        async with lived_in.working():  # some are answered by a turn
            told = await lived_in.ask(f"/{name} {argument}".strip(), sender=MEMBER, chat=MEMBER)
        for echo in (f"/{name} {argument}".strip(), f"re: {argument}", f'"{argument}"'):
            told = told.replace(echo, "")
        for owners in (
            SECRET,
            str(owners_session),
            str(lived_in.people.owner.id),
            "$",
            "config.json",
            "Ada",
            "budget:",
        ):
            assert owners not in told, argument
        untouched = await lived_in.rows("select ended_at from sessions where id = $1", owners_session)
        assert untouched == [(None,)]


@pytest.mark.parametrize("name", sorted(n for n, c in commands.discover().items() if c.owner_only))
async def test_what_is_the_owners_alone_is_not_listed_for_others_nor_in_groups(
    lived_in: MessagePath, name: str
) -> None:
    for who in ({"sender": MEMBER, "chat": MEMBER}, {"chat": "g", "private": False}):
        assert f"/{name}" not in await lived_in.ask("/help", **who)
        assert await lived_in.ask(f"/{name}", **who) == f"Only the owner can use /{name}, in a private chat."
    assert f"/{name}" in await lived_in.ask("/help")


async def test_a_providers_words_and_the_setup_are_for_the_owner(path: MessagePath) -> None:
    async with path.working():
        for who in ({}, {"sender": MEMBER, "chat": MEMBER}):
            await path.ask("hello", **who)
        failed = [{"model": "big", "error": "auth", "message": f"no such organisation {SECRET}"}]
        await path.rows("update task_steps set failed = $1", failed)
        mine, theirs = await path.ask("/why"), await path.ask("/why", sender=MEMBER, chat=MEMBER)
        assert "big failed: auth" in theirs
        assert (SECRET in mine, "$" in mine) == (True, True)
        assert (SECRET in theirs, "$" in theirs) == (False, False)
        assert await path.ask("/model", sender=MEMBER, chat=MEMBER) == "Model: fake"


async def everything_of(path: MessagePath) -> list[str]:
    """The tables of personal data, at least one row of the owner's in each, and all rights for the members' role."""
    tables = [name for (name,) in await path.rows(PERSONAL)]
    owner = path.people.owner.id
    await path.rows(
        """insert into memories (principal_id, text, label, origin, session_id, category)
           select $1, 'xyzzy', 0, 'test', id, 'fact' from sessions where principal_id = $1""",
        owner,
    )
    for statement in (
        """insert into memory_sources (memory_id, message_id, principal_id)
           select m.id, s.id, $1 from memories m, messages s where s.principal_id = $1 limit 1""",
        """insert into memory_progress (session_id, principal_id, seq, place)
           select id, $1, 1, 1 from sessions where principal_id = $1""",
        """insert into provider_fields (message_id, principal_id, label, source, message, calls)
           select id, $1, 0, 'xyzzy', '{}', '{}' from messages where principal_id = $1 limit 1""",
        """insert into thoughts (message_id, principal_id, label, text, tokens, ms)
           select id, $1, 0, 'xyzzy', 0, 0 from messages where principal_id = $1 limit 1""",
        "insert into memory_files (principal_id, path, version) values ($1, 'xyzzy', '')",
        "insert into memory_df (principal_id, lexeme, df) values ($1, 'xyzzy', 1)",
        "insert into memory_stats (principal_id, n) values ($1, 1)",
        "insert into memory_gone (principal_id, lexemes) values ($1, 'xyzzy')",
        "insert into synced_files (principal_id, place, path) values ($1, '', 'xyzzy')",
        "insert into running_commands (principal_id, instance_id) values ($1, $1)",
        "insert into imports (principal_id, agent, key, source, place) values ($1, '', '', 'xyzzy', '')",
        """insert into grants (principal_id, given_by, tool, act, arguments, times_left, expires_at)
           values ($1, $1, 'xyzzy', 'run', '{}', 1, now())""",
        """insert into audit select coalesce(max(seq), 0) + 1, now(), 'xyzzy', $1, '', '', '', '', '' from audit""",
        """insert into secrets (principal_id, shared, name, version, key_id, wrapped, sealed, hosts, tools, place)
           values ($1, true, 'xyzzy', 1, '', '', '', '{}', '{}', '')""",
    ):
        await path.rows(statement, owner)
    await path.rows(
        """insert into attachments (principal_id, session_id, message_id, place, channel, ref, name, mime)
           select $1, session_id, id, 0, 'fake', 'xyzzy', '', '' from messages where principal_id = $1 limit 1""",
        owner,
    )
    await path.rows(
        """insert into links (code, principal_id, address_id) select 'ABCDEFGH', $1, id from addresses
           where principal_id = $1""",
        owner,
    )
    await path.rows(
        """insert into pairings (principal_id, channel, account, chat, thread, sender, name, code)
           values ($1, 'fake', '', '', '', '', 'xyzzy', '')""",
        owner,
    )
    await path.rows(
        "insert into api_tokens (principal_id, name, sha256, scopes) values ($1, 'xyzzy', 'xyzzy', '{}')", owner
    )
    await path.rows(
        "insert into schedules (principal_id, name, prompt, origin, next_run_at) values ($1, 'xyzzy', '', '', now())",
        owner,
    )
    await path.rows(
        "insert into schedule_runs (schedule_id, slot, principal_id) select id, next_run_at, $1 from schedules", owner
    )
    await path.rows(
        """insert into triggers (principal_id, source, account, digest, task_id)
           select $1, 'xyzzy', '', '', id from tasks where principal_id = $1 limit 1""",
        owner,
    )
    await path.rows(
        """insert into todo_lists (task_id, principal_id, title, label, ordinal)
           select id, $1, 'xyzzy', 0, 0 from tasks where principal_id = $1 limit 1""",
        owner,
    )
    await path.rows(
        """insert into usage (day, principal_id, kind, model, calls, tokens_in, tokens_out, tokens_cached, cost_usd)
           values ('2026-01-01', $1, 'chat', 'xyzzy', 1, 1, 1, 1, 1)""",
        owner,
    )
    for table in tables:
        assert await path.rows(f"select exists (select from {table} where principal_id = $1)", owner) == [(True,)], (
            table
        )
    return tables


OWN_RIGHTS = {
    "bootstrap_last",
    "bootstrap_rows",
    "bootstrap_version",
    "hybrid_search",
    "memory_corrections",
    "memory_cosines",
    "memory_matches",
    "memory_nearest",
    "memory_newest",
    "memory_replacements",
    "memory_surroundings",
    "memory_usual",
    "memory_words",
    "say",
}
"""Functions that run with the rights of who calls them."""


async def passes(database: Database, statement: str, *arguments: object) -> list[Any] | None:
    """What it gives; None if the role may not."""
    try:
        async with database.connection() as conn:
            return list(await conn.fetch(statement, *arguments))
    except asyncpg.InsufficientPrivilegeError:
        return None


async def test_no_statement_on_a_bound_store_reaches_another_row_whatever_the_role_may_do(
    lived_in: MessagePath,
) -> None:
    tables = await everything_of(lived_in)
    owner, member = lived_in.people.owner.id, await member_of(lived_in)
    bound = lived_in.database.bound(member)
    await lived_in.rows("grant select, insert, update, delete on all tables in schema supaclaw to supaclaw_member")
    before = {t: await lived_in.rows(f"select * from {t} where principal_id = $1 order by 1", owner) for t in tables}
    for table in tables:
        seen = await passes(bound, f"select principal_id from {table}")
        assert {row["principal_id"] for row in seen or ()} <= {member}, table
        await passes(bound, f"update {table} set principal_id = principal_id where principal_id = $1", owner)
        await passes(bound, f"update {table} set principal_id = $1 where principal_id = $2", member, owner)
        await passes(bound, f"delete from {table} where principal_id = $1", owner)
        assert await passes(bound, f"update {table} set principal_id = $1", owner) in (None, []), table
    for table in tables:
        assert await lived_in.rows(f"select * from {table} where principal_id = $1 order by 1", owner) == before[table]
    known = await passes(bound, "select id from principals")
    assert [row["id"] for row in known or ()] == [member]
    for table in ("meta", "leases", "member_keys", "migrations", "guesses", "pins", "channel_facts"):
        assert not await passes(bound, f"select * from {table}")


async def test_a_bound_store_may_do_what_tools_need_and_nothing_else(lived_in: MessagePath) -> None:
    bound = lived_in.database.bound(await member_of(lived_in))
    tables = [name for (name,) in await lived_in.rows("select tablename from pg_tables where schemaname = 'supaclaw'")]
    readable = {table for table in tables if await passes(bound, f"select from {table} limit 1") is not None}
    assert readable == {
        "files",
        "attachments",
        "messages",
        "outbox",
        "addresses",
        "sessions",
        "inbox",
        "journals",
        "tasks",
        "schedules",
        "schedule_runs",
        "contents",
        "running_commands",
        "memories",
        "memory_sources",
        "memory_progress",
        "memory_df",
        "memory_stats",
        "memory_models",
        "todo_lists",
    }
    for secret in ("select text from inbox", "select input from tasks", "update addresses set session_id = null"):
        assert await passes(bound, secret) is None
    assert [table for table in tables if await passes(bound, f"delete from {table}") is not None] == ["schedules"]
    functions = await lived_in.rows(
        """select proname, prosecdef from pg_proc where pronamespace = 'supaclaw'::regnamespace
             and has_function_privilege('supaclaw_member', oid, 'execute') and prorettype <> 'trigger'::regtype"""
    )
    assert {name for name, definer in functions if definer} == {"member"}
    assert {name for name, definer in functions if not definer} == OWN_RIGHTS


async def test_a_bound_store_records_files_of_its_principal_alone(lived_in: MessagePath) -> None:
    owner, member = lived_in.people.owner.id, await member_of(lived_in)
    facts: dict[str, Any] = {"size": 1, "mime": "", "sha256": "", "label": Label.KNOWN}
    async with lived_in.database.bound(member).connection() as conn:
        await files.keep(conn, member, "secret.md", **facts, origin=files.OWN)
        assert await files.get(conn, owner, "secret.md") is None
    for path in ("secret.md", "kept.md"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with lived_in.database.bound(member).connection() as conn:
                await files.keep(conn, owner, path, **facts, origin=files.OWN)


async def test_what_a_member_has_sent_arrives_in_chats_of_their_own_alone(lived_in: MessagePath) -> None:
    lived_in.model.answer = in_turn(
        said(
            "", call("send_message", text="psst"), call("send_file", path="mine.md"), call("send_file", path="kept.md")
        ),
        said("done"),
    )
    lived_in.channel.shown.clear()
    lived_in.channel.capabilities = replace(lived_in.channel.capabilities, max_file=1_000_000)
    async with lived_in.working():
        await lived_in.ask("write to me", sender=MEMBER, chat=MEMBER)
        await lived_in.channel.until(lambda texts: "done" in texts)
    message, file, missing = results(lived_in.model.prompts[-1])[-3:]
    assert ("error" in message, "error" in file, "error" in missing) == (False, False, True)
    assert {shown.address.chat for shown in lived_in.channel.shown} == {MEMBER}


async def test_what_providers_say_about_an_account_is_for_its_owner(path: MessagePath) -> None:
    path.model.answer = lambda _: ModelsExhausted(f"big: {SECRET}", (Attempt("big", "auth", SECRET),))
    async with path.working():
        assert SECRET in await path.ask("hello")
        assert SECRET not in await path.ask("hello", sender=MEMBER, chat=MEMBER)


async def test_the_readable_copies_of_conversations_lie_apart(lived_in: MessagePath) -> None:
    home = lived_in.environments.of(await member_of(lived_in)).workspace.root
    said_here = [text for p in (home / "sessions").rglob("*.md") if (text := p.read_text())]
    assert any("hello yourself" in text for text in said_here)
    assert SECRET not in "".join(said_here)
    owners = [p.read_text() for p in (lived_in.workspace / "sessions").rglob("*.md")]
    assert any(SECRET in text for text in owners)
    assert "hello yourself" not in "".join(owners)


async def test_a_member_has_a_page_of_their_own(database: Database, workspace: Path) -> None:
    path = await build(database, workspace, FakeModel())
    (workspace / "USER.md").write_text(f"Ada likes {SECRET}.")
    (workspace / ".agents").mkdir()
    (workspace / ".agents" / "USER.md").write_text(SECRET)
    path.model.answer = in_turn(
        said("", call("write_file", path="USER.md", content="Bob likes tea.")), said("noted"), said("tea"), said("Ada")
    )
    async with path.working():
        await path.ask("I like tea", sender=MEMBER, chat=MEMBER)
        await path.ask("what do I like?", sender=MEMBER, chat=MEMBER)
        await path.ask("who am I?")
    systems = [prompt.messages[0].text for prompt in path.model.prompts]
    assert "Bob likes tea." in systems[2]
    assert SECRET not in "".join(systems[:3])
    assert "Bob likes tea." not in systems[3]
