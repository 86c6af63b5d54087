"""The parts of a gateway along the path of a message: way in, turns, work, way out; records below, upkeep beside.

One file per group: a frozen dataclass, and the function that builds it from the groups below. `assembly` calls them.
"""
