"""Importers of what other programs keep, one source per file: a module's `source` defines it, its name names it.

A source is a pure parser. It reads files, yields records and stores nothing; `storing` does that for all of them.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.errors import OwnerMustAct
from gateway.domain.memory.imports import Record
from gateway.importers.records.files import Reader


@dataclass(frozen=True, slots=True)
class Part:
    """What another source, by its name, is to read."""

    source: str
    path: Path


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of file or folder; `expects` describes it in a few words, `matches` looks whether a path is one."""

    expects: str
    matches: Callable[[Path], bool]
    read: Callable[[Path, Reader], Iterable[Record]]
    parts: Callable[[Path], Sequence[Part]] = lambda _path: ()
    """Files in it that other sources read, before its own."""


def discover() -> dict[str, Source]:
    """All sources, by name as on the command line; raises `OwnerMustAct` for a file that does not define one."""
    found: dict[str, Source] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            continue
        try:
            source = importlib.import_module(f"{__name__}.{module.name}").source
        except Exception as exc:
            raise OwnerMustAct(f"importer {module.name} cannot be loaded: {exc}; fix or remove its file") from exc
        found[module.name.replace("_", "-")] = source
    return found


def parts_of(name: str, path: Path, sources: dict[str, Source]) -> Iterator[Part]:
    """Yield what is to be read at `path`, in order: for `all` by whichever source knows it, else by the named one.

    Raises `OwnerMustAct` if nothing can be.
    """
    if not path.exists():
        raise OwnerMustAct(f"{path} does not exist; give the file or folder to import")
    if name == ALL:
        names = [each for each, source in sources.items() if source.matches(path)]
        if not names:
            known = "; ".join(f"{each}: {source.expects}" for each, source in sources.items())
            raise OwnerMustAct(f"nothing to import was found in {path}. Sources are {known}")
    else:
        names = [name]
    seen: set[Part] = set()
    for each in names:
        for part in (*sources[each].parts(path), Part(each, path)):
            if part not in seen:
                seen.add(part)
                yield part


ALL = "all"
"""The name for whatever is found."""
