"""MEMORY.md: each bullet or paragraph is a memory."""

from gateway.importers import Source
from gateway.importers.records.texts import facts

source = Source("a MEMORY.md", lambda path: path.is_file() and path.name.upper() == "MEMORY.MD", facts)
