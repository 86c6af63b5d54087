"""Removes passages permanently, from every row that has them; the heap pages follow after the commit."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from asyncpg.exceptions import InsufficientPrivilegeError

from gateway.domain.ids import EntryId, MemoryId, MessageId, PrincipalId, SessionId
from gateway.domain.memory.erasing import ERASED, Erasure
from gateway.domain.principals import Label
from gateway.domain.text.texts import key_digest
from gateway.store.connection.pool import Connection, Database
from gateway.store.connection.rows import row_count, statement
from gateway.store.dump import LONGEST, prepare_dump
from gateway.store.memory import indexing
from gateway.store.transcript import sessions

CONTENT: Mapping[str, tuple[str, ...]] = {
    "messages": ("text", "sender"),
    "inbox": ("text", "client"),
    "outbox": ("text", "error", "buttons"),
    "attachments": ("name", "error"),
    "journals": ("summary",),
    "sessions": ("name", "title"),
    "tasks": ("input", "output", "error", "intermediate_data", "storage_paths"),
    "task_steps": ("failed",),
    "reviews": ("arguments", "preview", "response"),
    "grants": ("arguments",),
    "todo_lists": ("title", "steps", "trivial"),
    "schedules": ("name", "prompt", "plan"),
    "schedule_runs": ("error",),
    "files": ("description", "problem"),
    "imports": ("place",),
}
"""The columns that hold what people, models and programs said, or names that quote it. Memories are deleted whole."""

KEYS: Mapping[str, Mapping[str, str]] = {
    "triggers": {"idempotency_key": "idempotency_key is not null"},
    "inbox": {"chat": "{of_clients}", "platform_id": "{of_clients}"},
    "addresses": {"chat": "{of_clients}"},
    "messages": {"platform_id": "address_id in (select id from addresses where {of_clients})"},
}
"""The columns with keys that clients may choose, and in which rows: there, a key that quotes something is replaced by
its hash, by which idempotency keys are still recognised. Messengers choose all others, and need them."""
_OF_CLIENTS = "channel in ('api', 'web', 'terminal')"
_BESIDES = {
    "messages": ", tokens = null",
    "inbox": ", handled_at = coalesce(handled_at, now())",
    # An approval is over. What a task waits for expires with the next look, which wakes the task.
    "reviews": ", state = case when state = 'open' and kind = 'approval' then 'expired' else state end,"
    " expires_at = case when state = 'open' and kind = 'review' then created_at else expires_at end",
    "grants": ", revoked_at = coalesce(revoked_at, now())",
}
_UNIQUE = {("sessions", "name"), ("schedules", "name")}
_BATCH = 1_000

_HIDDEN = {"provider_fields": "calls || message", "thoughts": "array[text]"}
"""Tables of what no prompt shows as text, by message: the arrays of their texts."""
_READ = "select {columns} from {table}"
_FORGET = """
delete from {table} f using messages m where m.id = f.message_id and (m.id = any($1) or exists (
  select from messages touched where touched.id = any($2) and touched.session_id = m.session_id))"""
_WRITE = "update {table} set {values} where ctid = $1"
_HELD = "select {text} as text from {table} where {column} is not null"
_CHOSEN = "select distinct {column} as key from {table} where {column} is not null and {rows}"
_REPLACED = "update {table} set {column} = $2 where {column} = $1 and {rows}"
_ANSWERED = "update {table} set text = $2 where message_id = any($1) and text <> $2 {kinds}"
_SOURCES = """
select id, entry_id, text from messages where principal_id = $1 and id in (
  select message_id from memory_sources where memory_id = any($2) union select unnest($3::bigint[]))"""


_KEPT = ["addresses", "audit", "inbox", "pairings", "synced_files", "usage"]
"""Accounts, decisions, sums of costs, and the objects that the next synchronisation deletes."""
_GONE = "gone_{table} as (delete from {table} where principal_id = $1 {besides} returning 1)"
_COUNT = "select '{table}' as name, count(*) as rows from gone_{table}"
_BUT_NEW = {"sessions": "and id <> all($2::uuid[])"}
_UNSAID = """update inbox set text = '', client = null, message_id = null, journal_id = null,
               handled_at = coalesce(handled_at, now()) where principal_id = $1"""


@dataclass(frozen=True, slots=True)
class Origins:
    """A memory with what it replaced and what replaced it, and the messages that all these were learned from."""

    memories: Mapping[MemoryId, str]
    messages: Mapping[MessageId, str]
    entries: frozenset[EntryId]


async def origins(conn: Connection, principal: PrincipalId, memory: MemoryId) -> Origins:
    """Empty if this principal has no such memory."""
    chain = await conn.fetch(statement("memory/memory_chain"), principal, memory)
    turns = [row["message_id"] for row in chain if row["message_id"] is not None]
    said = await conn.fetch(_SOURCES, principal, [row["id"] for row in chain], turns)
    return Origins(
        {row["id"]: row["text"] for row in chain},
        {row["id"]: row["text"] for row in said},
        frozenset(EntryId(row["entry_id"]) for row in said),
    )


async def erase(tx: Connection, erasure: Erasure, origins: Origins) -> Counter[str]:
    """Take it out of all rows; returns how many of each table. An inbox row stays, for its key tells a repetition."""
    await prepare_dump(tx)
    messages = list(origins.messages)
    counts, touched = Counter[str](), set(messages)
    sql = """update messages set text = $2, tokens = null, closed_at =
               coalesce(closed_at, case when kind = 'user' and answered_by is null then now() end)
             where id = any($1) and text <> $2"""
    counts["messages"] += row_count(await tx.execute(sql, messages, ERASED))
    for table, left, kinds in (("inbox", "", "and kind in ('message', 'edit')"), ("outbox", ERASED, "")):
        counts[table] += row_count(await tx.execute(_ANSWERED.format(table=table, kinds=kinds), messages, left))
    for table, columns in CONTENT.items():
        found = await _cleaned(tx, erasure, table, columns)
        counts[table] += len(found)
        touched |= {row["id"] for row in found} if table == "messages" else set()
    # A run would make the calls of a plan without its words, which nobody has confirmed.
    await tx.execute("update schedules set plan = null where strpos(plan::text, $1) > 0", ERASED)
    for table, keys in KEYS.items():
        for column, rows in keys.items():
            counts[table] += await _keys(tx, erasure, table, column, rows.format(of_clients=_OF_CLIENTS))
    for table, texts in _HIDDEN.items():
        counts[table] += await _hidden(tx, erasure, list(touched), table, texts)
    counts["meta"] += await _last_heartbeat(tx, erasure)
    counts["files"] += await _paths(tx, erasure)
    counts["memories"] += await _memories(tx, erasure, origins, list(touched))
    while await tx.fetchval("select exists (select from memory_gone)"):
        await indexing.count_words(tx, _BATCH)
    return +counts


async def left(tx: Connection, erasure: Erasure) -> Counter[str]:
    """How many rows of each column of the schema still quote something: names that messengers and the owner gave."""
    counts = Counter[str]()
    for table, column, text in await tx.fetch(statement("memory/text_columns")):
        query = _HELD.format(text=text, table=table, column=column)
        counts[f"{table}.{column}"] = sum([erasure.in_text(r["text"]) async for r in tx.cursor(query, prefetch=_BATCH)])
    return +counts


async def forget_file(tx: Connection, principal: PrincipalId, path: str) -> None:
    """Forget a file's name, facts, text and passages; only its row's id stays."""
    await tx.execute(statement("memory/erase_file"), principal, path, ERASED)
    await indexing.remove_passages(tx, principal, path)


async def relabel(tx: Connection, principal: PrincipalId, path: str, before: str, after: str, size: int) -> None:
    """A file that is about to lose a passage will be trusted as it was."""
    sql = """insert into contents (principal_id, sha256, label, source)
           select $1, $3, label, source from contents where principal_id = $1 and sha256 = $2 on conflict do nothing"""
    await tx.execute(sql, principal, before, after)
    sql = "update files set sha256 = $3, size = $4 where principal_id = $1 and path = $2"
    await tx.execute(sql, principal, path, after, size)


async def forget_content(tx: Connection, principal: PrincipalId, before: str) -> None:
    """Forget the label of an erased content: its hash would confirm a guess."""
    await tx.execute("delete from contents where principal_id = $1 and sha256 = $2", principal, before)


async def erase_person(tx: Connection, person: PrincipalId) -> Counter[str]:
    """Delete all rows of a person but those that `_KEPT` names; returns how many of each table.

    Their chats begin anew. An inbox row stays without its text, for its key tells a repetition.
    """
    await prepare_dump(tx)
    new = list[SessionId]()
    for row in await tx.fetch("select distinct session_id from addresses where principal_id = $1", person):
        new.append(await sessions.start(tx, person, Label.KNOWN))
        await tx.execute("update addresses set session_id = $2 where session_id = $1", row["session_id"], new[-1])
    await tx.execute(_UNSAID, person)
    tables = [row["name"] for row in await tx.fetch(statement("memory/personal_tables"), _KEPT)]
    # One statement, so that the order of references doesn't matter.
    gone = ", ".join(_GONE.format(table=table, besides=_BUT_NEW.get(table, "")) for table in tables)
    counts = " union all ".join(_COUNT.format(table=table) for table in tables)
    found = await tx.fetch(f"with {gone} {counts}", person, new)
    await tx.execute("delete from memory_gone where principal_id = $1", person)
    return Counter({row["name"]: row["rows"] for row in found})


async def vacuum(database: Database) -> None:
    """Leave nothing of deleted rows in the pages of tables and their statistics."""
    async with database.connection() as conn:
        tables = await conn.fetch("select tablename from pg_tables where schemaname = 'supaclaw' order by 1")
    for (table,) in tables:
        how = "vacuum" if table == "memory_vectors" else "vacuum (full, analyze)"
        await database.alone(f"{how} supaclaw.{table}", LONGEST)
    with suppress(InsufficientPrivilegeError):  # elsewhere, the server's own vacuum comes to it
        await database.alone("vacuum full pg_catalog.pg_statistic", LONGEST)


async def _cleaned(tx: Connection, erasure: Erasure, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that held something, as they are now."""
    changed: list[dict[str, Any]] = []
    read = ", ".join((*columns, "ctid", *(["id"] if table == "messages" else [])))
    async for row in tx.cursor(_READ.format(columns=read, table=table), prefetch=_BATCH):
        clean = {name: erasure.clean_json(row[name]) for name in columns}
        if any(clean[name] != row[name] for name in columns):
            for name in columns:
                if clean[name] != row[name] and (table, name) in _UNIQUE:
                    clean[name] = f"{clean[name]} {token_hex(3)}"
            changed.append({**row, **clean})
    values = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 2))
    query = _WRITE.format(table=table, values=values + _BESIDES.get(table, ""))
    await tx.executemany(query, [(row["ctid"], *(row[name] for name in columns)) for row in changed])
    return changed


async def _keys(tx: Connection, erasure: Erasure, table: str, column: str, rows: str) -> int:
    names = {"table": table, "column": column, "rows": rows}
    keys = tx.cursor(_CHOSEN.format(**names), prefetch=_BATCH)
    found = [row["key"] async for row in keys if erasure.in_text(row["key"])]
    await tx.executemany(_REPLACED.format(**names), [(key, key_digest(key)) for key in found])
    return len(found)


async def _hidden(tx: Connection, erasure: Erasure, messages: Sequence[MessageId], table: str, columns: str) -> int:
    """Delete rows that quote it, and all of the conversations that were touched: some are encrypted, or reworded."""
    read = _READ.format(columns=f"message_id, {columns} as texts", table=table)
    rows = tx.cursor(read, prefetch=_BATCH)
    quoting = [row["message_id"] async for row in rows if any(map(erasure.in_text, row["texts"]))]
    return row_count(await tx.execute(_FORGET.format(table=table), quoting, messages))


async def _last_heartbeat(tx: Connection, erasure: Erasure) -> int:
    text = await tx.fetchval("select value ->> 'text' from meta where key = 'heartbeat' for update")
    if not text or (clean := erasure.clean(text)) == text:
        return 0
    await tx.execute("update meta set value = value || $1 where key = 'heartbeat'", {"text": clean})
    return 1


async def _paths(tx: Connection, erasure: Erasure) -> int:
    """Files whose names have it are renamed or removed by now."""
    found = 0
    for table in ("files", "memory_files"):
        async for row in tx.cursor(_READ.format(columns="principal_id, path", table=table), prefetch=_BATCH):
            if erasure.in_text(row["path"]):
                await forget_file(tx, row["principal_id"], row["path"])
                found += 1
    return found


async def _memories(tx: Connection, erasure: Erasure, origins: Origins, messages: Sequence[MessageId]) -> int:
    """Delete memories that quote it, with their vectors; of messages, only their index rows."""
    ids = list(origins.memories)
    query = "select id, text, tags, path from memories where kind <> 'turn'"
    async for row in tx.cursor(query, prefetch=_BATCH):
        if any(map(erasure.in_text, (row["text"], *row["tags"], row["path"] or ""))):
            ids.append(row["id"])
    done = "delete from memories where id = any($1) or message_id = any($2)"
    return row_count(await tx.execute(done, ids, list(messages)))
