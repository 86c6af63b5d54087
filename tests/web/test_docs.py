import re
from pathlib import Path

from gateway.domain.people.credentials import Scope
from gateway.web.v1.request import ONLY
from tests.web.conftest import Web
from tests.web.test_security import routes

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


async def test_every_route_is_described(web: Web):
    paths = {path.split("?")[0].split("{")[0].rstrip("/") for _, path in routes(web)} - {"", "/chat", "/chat/events"}
    live = {f"{page}/events" for page in re.findall(r"^\| `(/\w+)` \*", PAGE, re.MULTILINE)}
    assert [path for path in sorted(paths - live) if path not in PAGE] == ["/login/state"]


def test_every_field_that_is_not_fully_supported_is_described():
    for field in ONLY:
        assert f"`{field}`" in PAGE, field


def test_every_scope_is_described():
    for scope in Scope:
        assert f"`{scope.value}`" in PAGE, scope
