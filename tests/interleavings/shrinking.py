"""The shortest schedule that still fails: fewer draws first, then draws of 0, which are no fault and nobody's turn."""

from collections.abc import Iterator

from tests.interleavings.invariants import Violation
from tests.interleavings.scheduler import Draws
from tests.interleavings.world import World


async def shortest(world: World, drawn: list[int], *, faults: int) -> tuple[list[int], Violation]:
    """The draws and the violation; raises `ValueError` if these draws don't fail."""
    if (found := await _violation(world, drawn, faults)) is None:
        raise ValueError("this schedule keeps all invariants")
    progress = True
    while progress:
        progress = False
        for candidate in _simpler(drawn):
            if (violation := await _violation(world, candidate, faults)) is not None:
                drawn, found, progress = candidate, violation, True
                break
    return drawn, found


def _simpler(drawn: list[int]) -> Iterator[list[int]]:
    size = len(drawn)
    while size := size // 2:
        for start in range(0, len(drawn), size):
            if start + size >= len(drawn):
                yield drawn[:start]
            elif any(drawn[start : start + size]):
                yield [*drawn[:start], *[0] * size, *drawn[start + size :]]


async def _violation(world: World, drawn: list[int], faults: int) -> Violation | None:
    try:
        await world.explore(Draws(drawn), faults=faults)
    except Violation as violation:
        return violation
    return None
