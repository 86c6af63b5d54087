"""The manifest of an archive: its last entry, written when everything else is known."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import IO

from pydantic import BaseModel, ValidationError

from gateway.config.data.keys import MASTER_KEY_FILE as MASTER_KEY
from gateway.domain.errors import OwnerMustAct, raising
from gateway.store.dump import Table
from gateway.store.migrate import read_migrations

FORMAT = 1
PIECE = 512 * 1024
MANIFEST = "manifest.json"
CONFIG = "config.json"
KEYS = "keys"
WORKSPACE = "workspace"
PRINCIPALS = "principals"
CHANNELS = "channels"

NOT_KEYS = ("postgres.", "local-token", MASTER_KEY)
"""Prefixes of files in `keys/` that backups leave out: database passwords, the local token, the master key.

A stolen backup alone gives away no stored secret.
"""


class Tar(tarfile.TarFile):
    """A tar of any number of entries; readers must clear `members`, which tarfile would keep in memory."""

    members: list[tarfile.TarInfo]


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of the archive; the name of a folder ends in a slash."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, info: tarfile.TarInfo, content: IO[bytes] | None) -> "Member":
        """The entry with the hash of its content; for a link, with the hash of its target's path."""
        name = f"{info.name}/" if info.isdir() else info.name
        source = content or io.BytesIO(info.linkname.encode("utf-8", "surrogateescape"))
        digest = hashlib.sha256()
        while piece := source.read(PIECE):
            digest.update(piece)
        shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return cls(name=shown, size=info.size, sha256=digest.hexdigest())


class _Version(BaseModel, frozen=True):
    format: int = FORMAT
    program: str
    schema_number: int


class Manifest(_Version, frozen=True):
    """The contents, the time and the program of an archive; ignores keys that later versions add."""

    id: str
    created: datetime
    left_out: tuple[str, ...]
    """Keys of config.json whose values are not in the archive."""
    skipped: int
    """The number of pipes, sockets, devices and links out of their folder that the archive leaves out."""
    replaced: int = 0
    """The number of lines in which a secret's name replaces its value."""
    tables: tuple[Table, ...]
    rows: int
    counters: Mapping[str, int]
    members: tuple[Member, ...]

    @classmethod
    def read(cls, raw: bytes) -> "Manifest":
        """Parse a manifest; raises `ValueError` if it is invalid, `OwnerMustAct` if a later program wrote it."""
        with raising(ValueError("its manifest cannot be read"), ValidationError):
            version = _Version.model_validate_json(raw)
            if version.format > FORMAT or version.schema_number > len(read_migrations()):
                raise OwnerMustAct(f"SupaClaw {version.program}, a newer one, wrote this backup: update SupaClaw")
            return cls.model_validate_json(raw)

    @property
    def logins(self) -> list[str]:
        """The channels that will be signed in after a restore."""
        return sorted({member.name.split("/")[1] for member in self.members if member.name.startswith(f"{CHANNELS}/")})

    @property
    def has_secrets(self) -> bool:
        """Whether it contains sealed values, which need the recovery key."""
        return any(member.name == "database/secrets.copy" and member.size for member in self.members)

    def __str__(self) -> str:
        files = sum(not member.name.endswith("/") for member in self.members) - len(self.tables)
        return f"{self.rows} rows and {files} files, saved {self.created:%Y-%m-%d %H:%M} UTC"


def table_member(table: Table) -> str:
    """The entry that holds the rows of a table."""
    return f"database/{table.name}.copy"


def stays_inside(name: str, target: str) -> bool:
    """Whether a link at `name` points to a place in the same file root, even if other entries are links.

    `..` is allowed only at the beginning, where the folders on the way up are known to be folders.
    """
    above = name.split("/")[:-1]
    depth = len(above) - (2 if name.startswith(f"{PRINCIPALS}/") else 1)
    parts = target.rstrip("/").split("/")
    climbs = len(list(takewhile(lambda part: part == "..", parts)))
    return climbs <= depth and {"", ".", ".."}.isdisjoint((*above, *parts[climbs:]))
