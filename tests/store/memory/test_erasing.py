import asyncpg

from gateway.domain.health import HeartbeatOutcome
from gateway.domain.memory.erasing import ERASED, Erasure
from gateway.store.memory import erasing
from gateway.store.memory.erasing import CONTENT, Origins
from gateway.store.work import heartbeats
from tests.store.work.test_heartbeats import NOON
from tests.store.world import World

DELETED = {"memories", "memory_df", "memory_files", "memory_gone", "provider_fields", "thoughts"}
"""Rows with the words are deleted."""
NOT_SAID = {
    "addresses": "channel account chat thread model thinking",
    "api_tokens": "name kind sha256 scopes source agent",
    "attachments": "channel ref mime state",
    "audit": "event subject actor detail prev hash",  # keyed hashes
    "channel_facts": "channel name value",
    "contents": "sha256 source",
    "files": "path mime sha256 origin text_path view_path",  # the paths with the file
    "grants": "tool act base bounded",
    "guesses": "who",
    "imports": "agent key source",
    "inbox": "channel account chat platform_id kind sender",
    "homes": "thing",
    "instances": "name kind",
    "journals": "path",
    "leases": "name",
    "links": "code channel account chat thread sender name",
    "member_keys": "key",
    "memory_models": "name",
    "messages": "kind origin platform_id call_id tool album model",
    "meta": "key value",  # but for what the last heartbeat said
    "migrations": "name sha256",
    "model_refusals": "source part model",
    "outbox": "state platform_id reply_to",
    "pairings": "channel account chat thread sender name code state",
    "pins": "kind name state sha256 content source",  # what the owner confirmed, byte for byte
    "principals": "role name identities unconfirmed",
    "reviews": "kind tool base digest state decided_by act",
    "schedules": "cron zone misfire origin asked_by",
    "secrets": "name key_id wrapped sealed hosts tools place",
    "sessions": "digest agent",
    "task_steps": "kind name",
    "swept_objects": "place sha256",
    "synced_files": "place path sha256",  # the path as that of a file
    "tasks": "kind lane agent status dedupe",
    "triggers": "source account idempotency_key digest",
    "table_sizes": "name",
    "usage": "kind model",
}
"""Who, where, when, which kind: nothing of what was said."""


async def test_of_every_column_that_can_hold_text_it_is_known_whether_it_holds_what_was_said(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            """select c.relname as table, a.attname as column from pg_attribute a join pg_class c on c.oid = a.attrelid
               where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r' and a.attnum > 0
                 and not a.attisdropped
                 and a.atttypid in ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype, 'bytea'::regtype,
                                    'tsvector'::regtype)"""
        )
    finally:
        await connection.close()

    known = {(table, name) for table, names in CONTENT.items() for name in names}
    known |= {(table, name) for table, names in NOT_SAID.items() for name in names.split()}
    assert {(row["table"], row["column"]) for row in rows if row["table"] not in DELETED} == known


async def test_what_the_last_heartbeat_said_is_erased(world: World) -> None:
    async with world.database.transaction() as tx:
        await heartbeats.begin(tx, NOON)
        await heartbeats.ended(tx, HeartbeatOutcome.OK, "The quagga waits. All is well.", NOON)
        counts = await erasing.erase(tx, Erasure(["quagga"], []), Origins({}, {}, frozenset()))
        pulse = await heartbeats.begin(tx, NOON)

    assert pulse.text == f"{ERASED} All is well."
    assert pulse.outcome is HeartbeatOutcome.OK
    assert counts == {"meta": 1}
