"""The parts of a gateway in the order of a message: way in, turns, work, way out; then records and upkeep.

Each file has one group: a frozen dataclass, and the function that builds it from other groups. `assembly` calls these
functions.
"""
