"""What an archive says about itself: the last entry in it, written when everything else is known."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.domain.errors import OwnerMustAct
from gateway.store.dump import Table

FORMAT = 1
MANIFEST = "manifest.json"
CONFIG = "config.json"
KEYS = "keys"
WORKSPACE = "workspace"
PRINCIPALS = "principals"
DATABASE = "database"

Kind = Literal["file", "folder", "link"]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True)


class Member(_Entry):
    """One entry of the archive; of a link, the text that says where it leads is what is measured."""

    name: str
    kind: Kind
    size: int
    sha256: str


class Dumped(_Entry):
    """One table; its rows are in `database/<name>.copy`."""

    name: str
    columns: tuple[str, ...]
    rows: int

    @property
    def table(self) -> Table:
        """What the database calls it."""
        return Table(self.name, self.columns)


class Manifest(_Entry):
    """What was saved, when, and by what; keys that a later version adds do not matter."""

    format: int
    id: str
    program: str
    schema_number: int
    created: datetime
    postgres: str
    secrets: bool
    left_out: tuple[str, ...]
    """Keys of config.json whose values are not in the archive."""
    tables: tuple[Dumped, ...]
    counters: Mapping[str, int]
    members: tuple[Member, ...]

    @property
    def files(self) -> int:
        """How many files there are, without the database."""
        return sum(member.kind == "file" and not member.name.startswith(f"{DATABASE}/") for member in self.members)

    @property
    def rows(self) -> int:
        """How many rows there are in all tables."""
        return sum(table.rows for table in self.tables)


class _Version(_Entry):
    format: int
    program: str


def parse(raw: bytes) -> Manifest:
    """Raises `ValueError` for what is no manifest, `OwnerMustAct` for one of a later format."""
    try:
        version = _Version.model_validate_json(raw)
        if version.format > FORMAT:
            raise OwnerMustAct(f"SupaClaw {version.program} wrote this backup in a newer format: update SupaClaw")
        return Manifest.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError("its manifest cannot be read") from error


def table_member(table: str) -> str:
    """The entry that holds the rows of a table."""
    return f"{DATABASE}/{table}.copy"
