"""Imports from other programs: the `SOURCES` of each file, by their names.

A source is a pure parser: it reads files and yields records, which `records/writer` stores for all of them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.config.plugins import offers
from gateway.domain.errors import OwnerMustAct
from gateway.domain.memory.imports import Record
from gateway.importers.records.files import Reader
from gateway.store.transcript.imports import PASSPORT


@dataclass(frozen=True, slots=True)
class Part:
    """A file or folder for another source, which is named."""

    source: str
    path: Path


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of file or folder: `expects` describes it in a few words, `matches` recognises it, `read` parses it."""

    expects: str
    matches: Callable[[Path], bool]
    read: Callable[[Path, Reader], Iterable[Record]]
    parts: Callable[[Path], Sequence[Part]] = lambda _path: ()
    """The files in it that other sources read first."""
    forgeable: bool = False
    """Whether it is a text of lines, of which anybody who is quoted in it can forge further ones."""
    labelled: bool = False
    """Whether its records have proven labels, which the import takes as they are."""
    files: Collection[str] = ()
    """Patterns of the files that it reads in a folder, of which it counts the others as left out."""


def named(name: str) -> Callable[[Path], bool]:
    """A `matches` for a file of this name, in capital letters, whatever case the file's is in."""
    return lambda path: path.is_file() and path.name.upper() == name


def discover() -> dict[str, Source]:
    """All sources, by their names on the command line; raises `OwnerMustAct` for a file that does not define one."""
    return dict(sorted(pair for _, sources in offers(__name__, "SOURCES", Mapping) for pair in sources.items()))


def parts_of(name: str, path: Path, sources: dict[str, Source]) -> Iterator[Part]:
    """Yield the parts of `path` to read, in order, by the named source, or for `all` by each source that matches it.

    Raises `OwnerMustAct` if there is none.
    """
    if not path.exists():
        raise OwnerMustAct(f"{path} does not exist; name the file or folder to import")
    if name == ALL:
        names = [each for each, source in sources.items() if source.matches(path)]
        names = [PASSPORT] if PASSPORT in names else names  # which has all that the files beside it have
        if not names:
            expected = "; ".join(f"{each}: {source.expects}" for each, source in sources.items())
            raise OwnerMustAct(f"nothing to import was found in {path}. Sources are {expected}")
    else:
        names = [name]
    yield from dict.fromkeys(part for each in names for part in (*sources[each].parts(path), Part(each, path)))


def read_parts(
    name: str, path: Path, sources: dict[str, Source], reader: Reader
) -> Iterator[tuple[Part, Iterable[Record]]]:
    """Yield the parts of `path` with their records; what several sources of a folder leave out is counted once."""
    parts, read = list(parts_of(name, path, sources)), set[str]()
    for part in parts:
        inside = part.path.relative_to(path)
        read |= set(sources[part.source].files) if part.path == path else {f"{inside}", f"{inside}/*"}
    reader = replace(reader, read=read, counted=set())
    for part in parts:
        yield part, sources[part.source].read(part.path, reader)


ALL = "all"
"""The name that stands for every source that matches."""
