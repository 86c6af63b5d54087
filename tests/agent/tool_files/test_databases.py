"""Functions of a Postgres as tools: a real server, reached over real sockets and TLS."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import AF_INET
from ssl import SSLContext
from urllib.parse import parse_qs, quote, unquote, urlsplit

import asyncpg
import pytest

from gateway.agent.tool_files import calls
from gateway.domain.principals import Label
from gateway.net.addresses import Rules
from gateway.secrets.facts import Binding
from gateway.workspace.skills.parsing import BadSkill
from tests.agent.tool_files.test_calls import Desk, desk
from tests.net.test_hostile import self_signed
from tests.workspace.tool_files.test_tool_file import parsed
from tests.workspace.tool_files.writing import tool_md

__all__ = ["desk"]

FUNCTIONS = """
create table notes (id int generated always as identity, text text, day date, tags text[]);
create function add_note(text text, day date, tags text[] default '{}') returns int language sql
  as $$ insert into notes (text, day, tags) values ($1, $2, $3) returning id $$;
create function find_notes(word text) returns setof notes language sql as $$ select * from notes where text ~ word $$;
create function sneaky() returns int language sql as $$ insert into notes (text) values ('x') returning id $$;
create function twice(a int) returns int language sql as 'select a';
create function twice(a text) returns int language sql as 'select 1';
create function hidden() returns int language sql as 'select 42';
"""
KEY = "credential_secret_name: DB_KEY\ncredential_type: api_key\n"


@dataclass
class Relay:
    """Passes connections on to a socket of Postgres, which has no TLS of its own."""

    socket: str
    tls: SSLContext
    plain: bool = False
    """It says that it has no TLS."""
    port: int = 0
    connections: int = 0
    sent: bytes = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            first = await reader.readexactly(8)
            if first == bytes.fromhex("0000000804d2162f"):
                writer.write(b"N" if self.plain else b"S")
                self.sent += await reader.read() if self.plain else b""
                await writer.start_tls(self.tls)
                first = b""
            inside, out = await asyncio.open_unix_connection(self.socket)
            out.write(first)
            await asyncio.gather(_copy(reader, out), _copy(inside, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@dataclass
class Place:
    """A desk at which a database is declared."""

    desk: Desk
    relay: Relay
    name: str
    user: str
    password: str
    authority: str

    @property
    def address(self) -> str:
        return f"postgresql://{self.user}@localhost:{self.relay.port}/{self.name}"

    async def declare(self, address: str = "", tls: str = "ca: own.pem", secret: str = "", host: str = "") -> None:
        config = f"""\
database: {address or self.address}
{tls}
classes: {{find_notes: read, sneaky: read}}
functions:
  - name: add_note
    parameters: [{{name: text, required: true}}, {{name: day}}, {{name: tags, type: array}}, {{name: bad}}]
  - {{name: find_notes, parameters: [{{name: word, required: true}}]}}
  - {{name: sneaky}}
  - {{name: twice, parameters: [{{name: a, type: integer}}]}}
"""
        await self.desk.confirm(tool_md(config=config, type="rpc", more=KEY), own__pem=self.authority)
        binding = Binding.of([host or f"postgresql://localhost:{self.relay.port}"], ["weather"], "field:password")
        vault = self.desk.secrets.vault
        await vault.put(self.desk.owner, "DB_KEY", secret or self.password, shared=True, binding=binding)
        await self.desk.secrets.look()


@pytest.fixture
async def place(desk: Desk, dsn: str, tmp_path: Path) -> AsyncIterator[Place]:
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"set search_path to public;{FUNCTIONS}")
    await connection.close()
    parts = urlsplit(dsn)
    [folder] = parse_qs(parts.query)["host"]
    relay = Relay(f"{folder}/.s.PGSQL.5432", self_signed(tmp_path, "localhost"))
    server = await asyncio.start_server(relay.serve, "localhost", 0, family=AF_INET)
    relay.port = server.sockets[0].getsockname()[1]
    desk.source.tokens.rules = lambda: Rules.of([f"localhost:{relay.port}"])
    authority = (tmp_path / "certificate.pem").read_text()
    yield Place(desk, relay, parts.path.strip("/"), parts.username or "", unquote(parts.password or ""), authority)
    server.close()


async def test_a_listed_function_is_called_over_tls_with_values_of_its_types(place: Place) -> None:
    await place.declare()
    added = await place.desk.call("add_note", text="'); drop table notes; --", day="2026-11-25", tags=["a", 'b"c'])
    found = await place.desk.run("find_notes", word="drop")

    assert added["body"] == [{"add_note": 1}]
    assert json.loads(found.text)["body"] == [
        {"id": 1, "text": "'); drop table notes; --", "day": "2026-11-25", "tags": ["a", 'b"c']}
    ]
    assert found.label is Label.UNTRUSTED
    assert [event.event for event in await place.desk.events()].count("secret used") == 2
    assert (await place.desk.call("hidden"))["error"] == "unknown_tool"


async def test_what_the_database_refuses_is_told_and_what_only_reads_writes_nothing(place: Place) -> None:
    await place.declare()
    errors = {
        "sneaky": await place.desk.call("sneaky"),
        "twice": await place.desk.call("twice", a=1),
        "day": await place.desk.call("add_note", text="x", day="some day"),
        "bad": await place.desk.call("add_note", text="x", bad="y"),
        "text": await place.desk.call("add_note"),
    }
    assert {name: answer["error"] for name, answer in errors.items()} == {
        "sneaky": "sql_25006",
        "twice": "unknown_function",
        "day": "sql_22007",
        "bad": "invalid_arguments",
        "text": "invalid_arguments",
    }
    assert all("\n" not in answer["message"] for answer in errors.values())


async def test_once_others_words_were_read_a_call_asks_and_shows_what_it_does(place: Place) -> None:
    await place.declare()
    asked = await place.desk.run("add_note", Label.UNTRUSTED, text="x")
    assert "waiting_for_approval" in asked.text
    assert f"public.add_note of {place.address}" in place.desk.asked[0].change.preview
    assert "with the credential DB_KEY in the field password" in place.desk.asked[0].change.preview
    assert place.relay.connections == 0


async def test_the_secret_may_be_the_whole_connection_string_of_that_place(place: Place) -> None:
    whole = place.address.replace("@", f":{quote(place.password)}@")
    await place.declare(secret=whole)
    assert (await place.desk.call("find_notes", word="x"))["body"] == []
    await place.declare(secret=whole.replace("localhost", "elsewhere.example"))
    assert (await place.desk.call("find_notes", word="x"))["error"] == "no_credential"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"host": "postgresql://other.example:5432"}, "no_credential"),
        ({"address": "postgresql://u@127.0.0.1:5432/x", "host": "postgresql://127.0.0.1:5432"}, "not_allowed"),
        ({"address": "postgresql://u@169.254.169.254/x", "host": "postgresql://169.254.169.254"}, "not_allowed"),
        ({"address": "postgresql://u@2130706433:5432/x", "host": "postgresql://2130706433"}, "invalid_url"),
        ({"address": "postgresql://u@[::ffff:127.0.0.1]/x", "host": "postgresql://[::ffff:127.0.0.1]"}, "not_allowed"),
        ({"address": "postgresql://u@0.0.0.0/x", "host": "postgresql://0.0.0.0"}, "not_allowed"),
        ({"tls": "tls: verify"}, "unreachable"),
        ({"tls": "ca: TOOL.md"}, "bad_certificate"),
        ({"secret": "wrong-password"}, "refused"),
    ],
)
async def test_no_connection_that_was_not_meant_carries_the_password(
    place: Place, changed: dict[str, str], error: str
) -> None:
    await place.declare(**changed)
    answer = await place.desk.call("find_notes", word="x")
    assert answer["error"] == error
    assert place.relay.connections == (error in ("unreachable", "refused"))


async def test_without_tls_nothing_leaves_the_own_network(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.declare(tls='tls: "off"')
    assert (await place.desk.call("find_notes", word="x"))["body"] == []

    async def public(_host: str, _port: int, _rules: Rules) -> list[str]:
        return ["93.184.216.34"]

    monkeypatch.setattr(calls, "checked_addresses", public)
    assert (await place.desk.call("find_notes", word="x"))["error"] == "not_allowed"


async def test_a_server_that_claims_to_have_no_tls_gets_nothing(place: Place) -> None:
    await place.declare()
    place.relay.plain = True
    assert (await place.desk.call("find_notes", word="x"))["error"] == "unreachable"
    assert place.relay.sent == b""


async def test_a_reference_in_an_argument_stays_one(place: Place) -> None:
    await place.declare()
    await place.desk.call("add_note", text="${secret:DB_KEY}", day="2026-11-25")
    [note] = (await place.desk.call("find_notes", word="secret"))["body"]
    assert note["text"] == "${secret:DB_KEY}"


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:password@db.example/x",
        "postgresql://u@db.example/x?host=/var/run/postgresql",
        "postgresql://u@db.example/x?sslmode=disable",
        "postgresql://u@db.example,127.0.0.1/x",
        "postgresql://u@%2Fvar%2Frun/x",
        "postgresql://u@db.example/x#y",
        "postgresql:///x",
        "http://u@db.example/x",
        "postgresql://${secret:A}@db.example/x",
        "postgresql://u@db.example/x\\n.evil",
    ],
)
def test_an_address_has_a_user_a_host_and_a_name_only(address: str) -> None:
    config = f'database: "{address}"\nfunctions: [{{name: f}}]\n'
    with pytest.raises(BadSkill, match=r"config\.database"):
        parsed(tool_md(config=config, type="rpc", more=KEY))
