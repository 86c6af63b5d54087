"""MEMORY.md: each bullet or paragraph is a memory."""

from gateway.importers import Source, named
from gateway.importers.records.texts import facts

source = Source("a MEMORY.md", named("MEMORY.MD"), facts)
