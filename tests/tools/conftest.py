from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tools.desk import Desk, laid


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with laid(tmp_path) as desk:
        yield desk
