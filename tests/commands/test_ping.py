import re

from tests.flow.path import MessagePath


async def test_it_tells_the_delay_and_the_time(path: MessagePath) -> None:
    assert re.fullmatch(r"pong · \d+ ms · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", await path.ask("/ping"))
