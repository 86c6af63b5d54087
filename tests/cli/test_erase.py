"""What was said is erased for good: afterwards no table, journal, log, checkpoint or file has a word of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from gateway.app.storage.erase import erase_as_requested
from gateway.config.data.erasures import MEMBER, ErasureRequest, read_request, unfinished_erasures
from gateway.config.data.instance import hold_instance
from gateway.config.environment import Environment
from gateway.config.failpoints import Step
from gateway.config.load import load_early
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.ids import EntryId
from gateway.workspace.checkpoints import jobs
from gateway.workspace.journal.entries import JournalEntry, parse_entries, render_entries
from tests.cli.conftest import Supaclaw
from tests.ingest.samples import pdf
from tests.traces import IN_ROWS, WORDS, in_checkpoints, in_files

FACT = "The heron code is 7741 quagga"
SAID = f"Keep in mind: {FACT}, and nobody else may know it."
OTHER = "The shed has another code."
ENTRY = EntryId(UUID(int=7))
KEY = b"k" * 32
SCAN = "a mark behind a scan"

ROWS = """
with owner as (select id from principals where role = 'owner'),
friend as (insert into principals (id, role, name) values (gen_random_uuid(), 'member', 'Eve') returning id),
people as (select id, 1 as n from owner union all select id, 2 from friend),
s as (insert into sessions (id, principal_id, name) select gen_random_uuid(), id, $1 from people
      returning id, principal_id),
a as (insert into addresses (principal_id, channel, account, chat, private, session_id)
      select principal_id, 'telegram', '1', principal_id::text, true, id from s returning id, principal_id),
t as (insert into tasks (id, master_id, kind, lane, principal_id, session_id, status, input, output, error)
      select gen_random_uuid(), gen_random_uuid(), 'agent', 'chat', principal_id, id, 'completed',
        jsonb_build_object('prompt', $1::text), jsonb_build_object('deep', jsonb_build_array($1::text)), $1 from s
      returning id, principal_id),
st as (insert into task_steps (task_id, principal_id, kind, name, failed)
       select id, principal_id, 'model', 'm', jsonb_build_array(jsonb_build_object('message', $1::text)) from t),
j as (insert into journals (principal_id, session_id, path, summary, filed_at, closed_at)
      select principal_id, id, 'memory/20260102030405.md', left($2, 30) || E'…\\n→ ' || $1, now(), now() from s
      returning id, session_id, principal_id),
m as (insert into messages (session_id, principal_id, journal_id, address_id, seq, kind, text, label, origin, tool,
        entry_id, covers)
      select j.session_id, j.principal_id, j.id, a.id, k.seq, k.kind, k.text, 0, 'telegram', k.tool,
        case when k.seq = 1 and j.principal_id in (select id from owner) then $3 else gen_random_uuid() end,
        case when k.kind = 'summary' then 1 end
      from j join a using (principal_id), (values
        (1, 'user', $2::text, null), (2, 'assistant', 'I keep it. ' || upper($1) || '! Fine.', null),
        (3, 'tool_intent', jsonb_build_object('content', $1::text, 'tags', '[]'::jsonb)::text, 'remember'),
        (4, 'notice', 'Nothing of it here.', null),
        (5, 'summary', 'They spoke of birds. Ada said that ' || $1 || E'.\\nOpen: nothing.', null)
      ) k (seq, kind, text, tool)
      returning id, principal_id, address_id, seq, text, session_id),
i as (insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, text, platform_time,
        message_id, entry_id, handled_at)
      select principal_id, address_id, 'telegram', '1', principal_id::text, 'p' || seq, k.kind,
        case when seq = 2 then '/remember ' || $1 else $2 end, now(), id,
        case when seq = 1 and principal_id in (select id from owner) then $3 else gen_random_uuid() end, now()
      from m join (values (1, 'edit'), (2, 'command')) k (n, kind) on n = seq),
o as (insert into outbox (principal_id, address_id, message_id, text, state, error, buttons)
      select principal_id, address_id, id, text, 'sent', 'refused: ' || $1,
        jsonb_build_array(jsonb_build_object('label', $1::text))
      from m where seq < 3),
r as (insert into reviews (kind, principal_id, asked_id, tool, arguments, digest, preview, label)
      select 'approval', id, id, 'write_file', jsonb_build_object('content', $1::text), '', E'-old\\n+' || $1, 0
      from people),
h as (insert into schedules (principal_id, name, prompt, origin, label, zone)
      select id, $1, 'Say that ' || $1, 'user', 0, 'UTC' from people),
f as (insert into files (principal_id, path, mime, size, sha256, description, text_path)
      select id, 'uploads/2026-01-01/a.pdf', '', 1, 'x', 'A letter: ' || $1, 'uploads/2026-01-01/a.pdf.txt' from people
      returning id, principal_id),
at as (insert into attachments (principal_id, session_id, message_id, place, channel, ref, name, mime, state, file_id)
       select m.principal_id, session_id, m.id, 0, 'telegram', '', $1 || '.pdf', '', 'stored', f.id
       from m join f using (principal_id) where seq = 4),
turns as (insert into memories (principal_id, kind, session_id, message_id, place, label, origin, lexemes, counted)
          select principal_id, 'turn', session_id, id, seq, 0, 'telegram', array_to_tsvector('{quagg,7741}'), true
          from m where seq <> 4),
chunk as (insert into memories (principal_id, kind, path, place, text, label, origin, lexemes, counted)
          select id, 'chunk', 'notes/codes.md', 1, '- ' || $1, 0, 'file', array_to_tsvector('{quagg,7741}'), true
          from people),
summed as (insert into memories (principal_id, kind, text, session_id, label, origin, lexemes, counted)
           select principal_id, 'summary', 'They spoke. ' || $1, id, 0, 'summary',
             array_to_tsvector('{quagg,7741}'), true from s),
df as (insert into memory_df (principal_id, lexeme, df) select id, w, 6 from people, unnest('{quagg,7741}'::text[]) w)
insert into memory_sources (memory_id, message_id, principal_id)
select $4, id, principal_id from m where seq = 1 and principal_id in (select id from owner)
"""
TABLES = {
    *("attachments", "files", "inbox", "journals", "memories", "memory_df", "messages", "outbox", "reviews"),
    *("schedules", "sessions", "task_steps", "tasks"),
}


@pytest.fixture
def data(place: Path, dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> Path:
    """A data folder in which the words lie wherever they can."""
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    data = place / "data"
    (data / "keys").mkdir(parents=True)
    (data / "keys" / "journal").write_bytes(KEY)
    supaclaw("owner", "set", "telegram", "1")
    supaclaw("remember", "The heron code is 1 quagga")
    id = int(supaclaw("remember", FACT).out.split()[2])
    run(dsn, "update memories set superseded_by = $1, superseded_at = now() where id < $1", id)
    run(dsn, ROWS, FACT, SAID, ENTRY, id)
    [friend] = run(dsn, "select id from principals where role = 'member'")
    for root in (data / "workspace", data / "principals" / str(friend["id"])):
        files_in(root)
    jobs.commit(str(data / "workspace"), str(data / "checkpoints"), None, "asked")
    (data / "workspace" / "notes" / "new.md").write_text(f"Before.\n{FACT}\n")
    (data / "workspace" / "notes" / f"{WORDS} plan.md").write_text("Nothing in it.")
    jobs.commit(str(data / "workspace"), str(data / "checkpoints"), None, "asked")
    write(data / "journal" / "damaged" / "x.md", f"<!-- claw {FACT}")
    write(data / "chat-history", f"hello\n{FACT}\n")
    write(data / "logs" / "gateway-2026-01-01.log", json.dumps({"event": "x", "error": f"Failing row ({FACT})"}) + "\n")
    return data


def files_in(root: Path) -> None:
    write(root / "notes" / "codes.md", f"# Codes\n\n- shed: 12\n- {FACT.upper()}\n- gate: 34\n")
    write(root / "AGENTS.md", f"Be kind.\n**{FACT.replace(' ', '  ')}**\n")
    write(root / "blob.bin", b"\xff\xfe" + f"the {FACT}".encode("utf-16-le"))
    write(root / "uploads" / "2026-01-01" / "a.pdf", pdf("nothing that can be found"))
    write(root / "uploads" / "2026-01-01" / "a.pdf.txt", f"The letter says: {FACT}")
    write(root / "uploads" / "2026-01-01" / "a.pdf.pages" / "001.txt", f"The letter says: {FACT}")
    write(root / "uploads" / "2026-01-01" / "b.txt", FACT)
    write(root / "uploads" / "2026-01-01" / "c.txt", "of no interest")
    scan = pdf("nothing that can be found either") + SCAN.encode()
    read = root / "uploads" / "read" / sha256(scan).hexdigest()[:16]
    write(root / "notes" / "scan.pdf", scan)
    write(read / "scan.pdf.txt", f"The scan says: {FACT}")
    write(read / "scan.pdf.pages" / "view.jpg", SCAN)
    write(root / "memory" / "INDEX.md", f"# Conversations\n\n- [2026](2026.md) · Keep in mind\\: {FACT}\n- another\n")
    write(root / "memory" / "20260102030405.md", render_entries([arrived(ENTRY, SAID), entry(OTHER)], KEY))
    write(
        root / "sessions" / "2026-01-03" / "01-02-03.md",
        render_entries([entry(OTHER), arrived(EntryId(uuid4()), SAID)], KEY),
    )


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def entry(text: str) -> JournalEntry:
    return JournalEntry(EntryId(uuid4()), "assistant", datetime(2026, 1, 2, tzinfo=UTC), "SupaClaw", text)


def arrived(id: EntryId, text: str) -> JournalEntry:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    inbound = Inbound(
        Address("telegram", "1", "1"), Sender("1", "Ada"), text, "p9", at, private=True, as_owner=True, quoted=FACT
    )
    return JournalEntry(id, "message", at, "Ada", text, inbound)


def run(dsn: str, query: str, *arguments: object) -> list[asyncpg.Record]:
    async def fetch() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "supaclaw, public"})
        try:
            return list(await connection.fetch(query, *arguments))
        finally:
            await connection.close()

    return asyncio.run(fetch())


def hits(data: Path, dsn: str) -> list[str]:
    """Where the words are still, by table, file and object of the checkpoints; a scan has them in its text."""
    scans = [*in_files(data, words=SCAN), *in_checkpoints(data / "checkpoints", SCAN)]
    return [*in_tables(dsn), *in_files(data), *in_checkpoints(data / "checkpoints"), *scans]


def in_tables(dsn: str) -> Iterator[str]:
    for table in run(dsn, "select tablename as name from pg_tables where schemaname = 'supaclaw'"):
        for row in run(dsn, f"select t::text as row from {table['name']} t where t::text ~* $1", IN_ROWS):
            yield f"{table['name']}: {row['row'][:300]}"
    for row in run(dsn, "select s::text as row from pg_stats s where s::text ~* 'quagg' and schemaname = 'supaclaw'"):
        yield f"pg_stats: {row['row'][:200]}"


def erase(*more: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """As the shell would, without a terminal."""
    command = [sys.executable, "-m", "gateway", "memories", "forget", "2", "--erase", *more]
    return subprocess.run(
        command, env=os.environ | environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_not_a_word_is_left_anywhere_and_the_receipt_says_where_it_was(
    data: Path, dsn: str, supaclaw: Supaclaw
) -> None:
    before = hits(data, dsn)
    assert {hit.partition(":")[0] for hit in before} >= TABLES
    assert sum("scan.pdf" in hit for hit in before) >= 6, "two people's, with text and picture"
    assert supaclaw("backup", "saved.tar.gz").code == 0

    done = erase("--yes", "--also", "Quagga")

    assert done.returncode == 0, done.stderr
    assert hits(data, dsn) == [], done.stdout
    [backup] = [line for line in done.stdout.splitlines() if line.startswith("still in the backup of 20")]
    assert f" UTC {data.parent / 'saved.tar.gz'}, unless" in backup
    assert "heron" not in done.stdout
    assert "renamed: notes/quagga plan.md" in done.stdout
    root = data / "workspace"
    assert (root / "notes" / "codes.md").read_text() == "# Codes\n\n- shed: 12\n- [erased]\n- gate: 34\n"
    assert {path.name for path in (root / "uploads" / "2026-01-01").iterdir()} == {"c.txt"}
    filed = parse_entries((root / "memory" / "20260102030405.md").read_bytes(), KEY)
    assert [(entry.text, entry.inbound) for entry in filed.entries] == [("[erased]", None), (OTHER, None)]
    assert filed.intact
    said = run(dsn, "select distinct seq, text from messages order by seq")
    assert [row["text"] for row in said if row["seq"] == 4] == ["Nothing of it here."]
    assert [row["text"] for row in said if row["seq"] == 5] == ["They spoke of birds. [erased]\nOpen: nothing."]
    assert run(dsn, "select count(*) as n from inbox")[0]["n"] == 4
    assert run(dsn, "select distinct state from reviews")[0]["state"] == "expired"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step",
    [
        Step.ERASURE_BEGUN,
        f"{Step.ERASURE_FILE}:2",
        f"{Step.ERASURE_FILE}:12",
        Step.ERASURE_CHECKPOINTS,
        Step.ERASURE_COMMITTED,
        Step.ERASURE_VACUUMED,
    ],
)
def test_an_erasure_that_is_killed_is_told_of_and_finishes_when_it_is_run_again(
    data: Path, dsn: str, supaclaw: Supaclaw, step: str
) -> None:
    assert erase("--yes", "--also", WORDS, SUPACLAW_FAIL=step).returncode == -signal.SIGKILL
    assert unfinished_erasures(data) == {2: 1}
    assert WORDS not in (data / "erasures.unfinished").read_text()
    assert "the erasure of memory 2 broke off" in supaclaw("doctor").out
    assert "give the same again" in erase("--yes").stderr

    done = erase("--yes", "--also", WORDS)

    assert done.returncode == 0, done.stderr
    assert hits(data, dsn) == [], done.stdout
    assert unfinished_erasures(data) == {}


def test_nothing_is_erased_that_was_not_meant(data: Path, dsn: str, supaclaw: Supaclaw) -> None:
    run(
        dsn,
        """insert into memories (principal_id, kind, category, text, label, origin)
           select id, 'memory', 'fact', $1, 0, '' from principals where role = 'member'""",
        "Of Eve",
    )
    [theirs] = run(dsn, "select id from memories where text = 'Of Eve'")
    before = hits(data, dsn)

    unknown = supaclaw("memories", "forget", "999", "--erase", "--yes")
    another = supaclaw("memories", "forget", str(theirs["id"]), "--erase", "--yes")
    unsaid = supaclaw("memories", "forget", "2", "--erase")
    everything = supaclaw("memories", "forget", "2", "--erase", "--yes", "--also", "a")
    both = supaclaw("memories", "forget", "2", "--erase", "--undo")
    alone = supaclaw("memories", "forget", "2", "--also", "heron")
    with hold_instance(data):
        running = supaclaw("memories", "forget", "2", "--erase", "--yes")

    assert "There is no memory 999" in unknown.err
    assert another.err == unknown.err.replace("999", str(theirs["id"]))
    assert "add --yes" in unsaid.err
    assert "give at least 3 letters" in everything.err
    assert "can't be restored" in both.err
    assert "--also belongs to --erase" in alone.err
    assert "a gateway already runs" in running.err
    assert "`supaclaw down` stops it" in running.err
    assert {each.code for each in (unknown, another, unsaid, everything, both, alone, running)} == {1}
    assert hits(data, dsn) == before


def test_all_that_is_a_members_is_erased_and_nobody_elses_and_they_get_the_receipt(
    data: Path, dsn: str, supaclaw: Supaclaw
) -> None:
    (data.parent / "config.json").write_text('{"channels": {"telegram": {"token": "1:x"}}}')
    run(dsn, "update principals set identities = '{telegram:7}' where role = 'member'")
    [eve] = run(dsn, "select id from principals where role = 'member'")
    owners = "select count(*) as n from {} where principal_id <> $1"
    tables = run(dsn, "select table_name as name from information_schema.columns where column_name = 'principal_id'")
    before = {row["name"]: run(dsn, owners.format(row["name"]), eve["id"])[0]["n"] for row in tables}
    kept = sum(hit.startswith("workspace/") for hit in in_files(data))

    refused = supaclaw("pairing", "erase", "telegram:7")
    not_theirs = supaclaw("pairing", "erase", "telegram:1", "--yes")
    done = supaclaw("pairing", "erase", "telegram:7", "--yes")
    again = supaclaw("pairing", "erase", "telegram:7", "--yes")

    assert "add --yes to confirm" in refused.err
    assert "telegram:1 isn't a member's account" in not_theirs.err
    assert (done.code, again.code) == (0, 0), done.err + again.err
    assert "5 messages in 1 conversations" in done.out
    assert before == {name: run(dsn, owners.format(name), eve["id"])[0]["n"] for name in before}
    for name in before.keys() - {"audit"}:
        left = run(dsn, f"select t::text as row from {name} t where principal_id = $1 and t::text ~* $2", *eve, IN_ROWS)
        assert left == [], name
    assert not (data / "principals" / str(eve["id"])).exists()
    assert sum(hit.startswith("workspace/") for hit in in_files(data)) == kept
    assert run(dsn, "select count(*) as n from inbox where principal_id = $1", eve["id"])[0]["n"] == 2
    receipts = run(dsn, "select text, state from outbox where principal_id = $1", eve["id"])
    assert "What stays: your access and account" in receipts[0]["text"]
    assert {row["state"] for row in receipts} == {"pending"}


@pytest.mark.parametrize("step", [Step.ERASURE_FILE, Step.ERASURE_COMMITTED])
def test_a_members_erasure_that_is_killed_finishes_at_the_next_start(data: Path, dsn: str, step: str) -> None:
    (data.parent / "config.json").write_text('{"channels": {"telegram": {"token": "1:x"}}}')
    run(dsn, "update principals set identities = '{telegram:7}' where role = 'member'")
    [eve] = run(dsn, "select id from principals where role = 'member'")
    files = sum(path.is_file() for path in (data / "principals" / str(eve["id"])).rglob("*"))
    killed = subprocess.run(
        [sys.executable, "-m", "gateway", "pairing", "erase", "telegram:7", "--yes"],
        env=os.environ | {"SUPACLAW_FAIL": step},
        check=False,
    )
    environment = Environment.read(os.environ)

    for _ in range(2):  # as two starts do
        asyncio.run(erase_as_requested(environment, load_early(environment, os.environ)))

    assert killed.returncode == -signal.SIGKILL
    for name in TABLES:
        query = f"select t::text as row from {name} t where principal_id = $1 and t::text ~* $2"
        assert run(dsn, query, *eve.values(), IN_ROWS) == [], name
    assert not (data / "principals" / str(eve["id"])).exists()
    [receipt] = run(dsn, "select text from outbox where principal_id = $1", *eve.values())
    assert f"5 messages in 1 conversations, 6 rows of memory, {files} files" in receipt["text"]
    assert read_request(data, MEMBER) == ErasureRequest()
