from gateway.domain.health import HeartbeatOutcome
from gateway.domain.memory.erasing import ERASED, Erasure
from gateway.store.memory import erasing
from gateway.store.memory.erasing import Origins
from gateway.store.work import heartbeats
from tests.store.work.test_heartbeats import NOON
from tests.store.world import World

COUNTED = {"memory_df.lexeme"}
"""Gone with the last memory that has the word."""
NOT_SAID = {
    "addresses": "channel account chat thread model thinking voice",
    "api_tokens": "name kind sha256 scopes source agent",
    "attachments": "channel ref mime state",
    "audit": "event subject actor detail prev hash",  # keyed hashes
    "channel_facts": "channel name value",
    "contents": "sha256 source",
    "files": "origin",
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
    "messages": "kind origin call_id tool album model withdrawn",
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
    "triggers": "source account digest",
    "table_sizes": "name",
    "usage": "kind model",
}
"""Who, where, when, which kind: nothing of what was said. The receipt names those that have the words nevertheless."""


COLUMNS = """
select c.relname as table, a.attname as column, t.typname as type,
       a.attnotnull and (not a.atthasdef or t.typname = 'bool') as needed
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
  and a.attidentity = '' and a.attgenerated = ''"""
QUOTES = {
    "text": "'The quagga {n}.'",
    "_text": "array['The quagga {n}.']",
    "jsonb": """'{"a": "The quagga {n}."}'::jsonb""",
    "tsvector": "'quagga'::tsvector",
    "bytea": "'The quagga {n}.'::bytea",
}
FILLERS = {"uuid": "gen_random_uuid()", "timestamptz": "now()", "date": "now()", "bool": "{n} = 2"}
UNCONSTRAINED = """do $$ declare each record; begin
  for each in select conrelid::regclass as t, conname as name from pg_constraint
              where connamespace = 'supaclaw'::regnamespace and contype in ('c', 'f') loop
    execute format('alter table %s drop constraint if exists %I', each.t, each.name);
  end loop;
  for each in select oid::regclass as t from pg_class
              where relnamespace = 'supaclaw'::regnamespace and relkind = 'r' loop
    execute format('alter table %s disable trigger user', each.t);
    execute format('delete from %s', each.t);
  end loop; end $$"""


async def test_in_every_column_that_can_hold_text_it_is_erased_or_named(world: World) -> None:
    """Each table gets a row with the words in all of its columns, and one more that comes from a client's channel."""
    async with world.database.connection() as conn:
        await conn.execute(UNCONSTRAINED)
        columns = await conn.fetch(COLUMNS)
        for table in {row["table"] for row in columns}:
            own = [row for row in columns if row["table"] == table and (row["type"] in QUOTES or row["needed"])]
            for n in (1, 2):
                values = {row["column"]: QUOTES.get(row["type"]) or FILLERS.get(row["type"], str(n)) for row in own}
                values |= {name: "'api'" for name in values if name == "channel" and n == 2}
                names, given = ", ".join(map('"{}"'.format, values)), ", ".join(values.values()).replace("{n}", str(n))
                await conn.execute(f"insert into {table} ({names}) values ({given})")
        await conn.execute("update messages set address_id = (select id from addresses where channel = 'api')")

    async with world.database.transaction() as tx:
        erasure = Erasure(["quagga"], [])
        await erasing.erase(tx, erasure, Origins({}, {}, frozenset()))
        left = await erasing.left(tx, erasure)

    kept = {f"{table}.{name}" for table, names in NOT_SAID.items() for name in names.split()}
    assert set(left) == kept | COUNTED
    assert {name: left[name] for name in ("inbox.chat", "inbox.platform_id", "addresses.chat")} == {
        "inbox.chat": 1,
        "inbox.platform_id": 1,
        "addresses.chat": 1,
    }


async def test_messages_that_their_client_gave_no_key_are_erased_like_others(world: World) -> None:
    async with world.database.transaction() as tx:
        await tx.execute(UNCONSTRAINED)
        await tx.execute(
            "insert into addresses (channel, account, chat, private, principal_id, session_id)"
            " values ('terminal', '', 'main', true, gen_random_uuid(), gen_random_uuid())"
        )
        await tx.execute(
            "insert into messages (address_id, principal_id, session_id, kind, label, origin, text)"
            " select id, principal_id, session_id, 'user', 0, 'terminal', 'quagga' from addresses"
        )
        counts = await erasing.erase(tx, Erasure(["quagga"], []), Origins({}, {}, frozenset()))
    assert counts == {"messages": 1}


async def test_what_the_last_heartbeat_said_is_erased(world: World) -> None:
    async with world.database.transaction() as tx:
        await heartbeats.begin(tx, NOON)
        await heartbeats.ended(tx, HeartbeatOutcome.OK, "The quagga waits. All is well.", NOON)
        counts = await erasing.erase(tx, Erasure(["quagga"], []), Origins({}, {}, frozenset()))
        pulse = await heartbeats.begin(tx, NOON)

    assert pulse.text == f"{ERASED} All is well."
    assert pulse.outcome is HeartbeatOutcome.OK
    assert counts == {"meta": 1}
