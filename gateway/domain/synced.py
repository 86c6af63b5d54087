"""Files that several machines share, as the map in the database has them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a file; two are the same if all of this is."""

    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A path in the map; without a content it was deleted. `version` is compared when it is set."""

    content: Content | None
    version: int
