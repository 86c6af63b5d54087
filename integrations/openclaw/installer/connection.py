"""The way from OpenClaw to the memory: an address and a token, in a private file in OpenClaw's state folder."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pydantic import AliasPath, BaseModel, Field, JsonValue

from gateway.cli.connections.database import require_owner, with_database
from gateway.cli.connections.local_gateway import gateway_address
from gateway.cli.terminal.output import ask, ask_secret_line
from gateway.config.data.files import replace_private
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct, TryAgainLater, raising
from gateway.domain.people.credentials import Scope
from gateway.domain.text.texts import one_line
from gateway.store.connection.pool import Database
from gateway.store.people import tokens
from integrations.openclaw.installer.openclaw import as_json
from integrations.openclaw.installer.state import InstallState, Places, load_json

CREDENTIALS = ".supaclaw.json"
FILE = "connection.json"
TIMEOUT_SECONDS = 15.0
OP_TIMEOUT_SECONDS = 60.0
"""Long enough for a person to unlock 1Password."""


class _Stored(BaseModel):
    id: int | str = Field(validation_alias=AliasPath("memory", "id"))


class _Found(BaseModel):
    hits: list[_Stored]


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a gateway and a token of scope memory."""

    url: str
    token: str

    def request(self, method: str, path: str, body: JsonValue = None) -> dict[str, JsonValue]:
        """Send a request and return the JSON object of its response.

        Raises `OwnerMustAct` if the gateway refuses it, `TryAgainLater` if it can't be reached.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.url + path, data, headers, method=method), timeout=TIMEOUT_SECONDS) as response:
                found = json.loads(response.read() or b"{}")
        except HTTPError as error:
            with error:
                raise OwnerMustAct(f"{self.url} answers {error.code}; is its token valid, of scope memory?") from error
        except (OSError, HTTPException, ValueError) as error:
            raise TryAgainLater(
                f"SupaClaw can't be reached at {self.url} ({one_line(str(error), 80)}); `supaclaw up` starts it"
            ) from error
        return found if isinstance(found, dict) else {}

    def round_trip(self) -> None:
        """Store a memory, find it and forget it; raises `OwnerMustAct` if the search misses it."""
        text = "OpenClaw keeps its memories in SupaClaw, as the check of its installation shows."
        answer = self.request("POST", "/api/memory", {"text": text, "category": "fact", "importance": 0.1})
        id = _Stored.model_validate(answer).id
        try:
            found = self.request("POST", "/api/memory/search", {"query": text, "max_results": 20})
        finally:
            self.request("DELETE", f"/api/memory/{id}")
        if id not in {hit.id for hit in _Found.model_validate(found).hits}:
            raise OwnerMustAct("a memory was stored and not found again; `supaclaw doctor` looks for the reason")


def remote_connection(places: Places, *, interactive: bool) -> Connection | None:
    """The gateway that `.supaclaw.json` names or the user types; None for the gateway of this machine."""
    found = load_json(places.workspace / CREDENTIALS)
    environment = Environment.read(os.environ)
    if not found and (environment.data.exists() or not interactive or not sys.stdin.isatty()):
        return None
    url = found.get("url") or ask("The address of your SupaClaw gateway?", gateway_address(environment))
    question = "A token of scope memory (`supaclaw token create openclaw --scope memory`)?"
    token = found.get("token") or ask_secret_line(question)
    return Connection(url.rstrip("/"), _read_reference(token))


def _read_reference(token: str) -> str:
    """Ask 1Password for the token if it is a reference such as op://vault/item/field."""
    if not token.startswith("op://"):
        return token
    command = ["op", "read", token]
    failed = OwnerMustAct(f"`op read {token}` fails; sign in to 1Password or put a token in {CREDENTIALS}")
    with raising(failed, OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=OP_TIMEOUT_SECONDS, check=True)
    return done.stdout.strip()


def issue(places: Places, state: InstallState) -> None:
    """Create the plugin's token, replacing that of an interrupted installation, and store it."""

    new = Connection(gateway_address(Environment.read(os.environ)), tokens.new_token())

    async def renew(database: Database) -> None:
        await _revoke(database, places, state)
        store(places, new)  # before the token exists: a kill between the two leaves none that no file names
        owner, rights = (await database.read(require_owner)).id, [Scope.MEMORY]
        agent, shared = state.agentId, state.config.shared
        await tokens.create(database, owner, state.token, rights, agent=agent, shared=shared, plain=new.token)

    with_database(renew)


def store(places: Places, connection: Connection) -> None:
    """Write the plugin's file (0600, in a folder 0700)."""
    places.connection.mkdir(mode=0o700, exist_ok=True)
    replace_private(places.connection / FILE, as_json({"url": connection.url, "token": connection.token}))


def stored(places: Places) -> Connection:
    """Read the plugin's file; raises `OwnerMustAct` if it is missing or damaged."""
    found = load_json(places.connection / FILE)
    if not {"url", "token"} <= found.keys():
        raise OwnerMustAct(
            f"{places.connection / FILE} is missing or damaged; revoke its token (`supaclaw token list`), "
            "then `supaclaw openclaw install --force` renews it"
        )
    return Connection(found["url"], found["token"])


def revoke(places: Places, state: InstallState) -> None:
    """Revoke the token in the plugin's file, so that a copy of the file is worthless; never another installation's."""
    with_database(lambda database: _revoke(database, places, state))


async def _revoke(database: Database, places: Places, state: InstallState) -> None:
    if plain := load_json(places.connection / FILE).get("token"):
        await tokens.revoke(database, state.token, plain)


def check_database(name: str, *, fresh: bool) -> None:
    """Raise `OwnerMustAct` if there is no owner, or if a `fresh` installation finds a token of that name."""

    async def work(database: Database) -> bool:
        await database.read(require_owner)
        return any(token.name == name for token in await tokens.list_all(database))

    if with_database(work) and fresh:
        raise OwnerMustAct(f'a token "{name}" exists already; revoke it, or choose another name by --agent')
