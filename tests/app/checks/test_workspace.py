import asyncio
import json

import pytest

from gateway.app.checks.workspace import check_workspace
from tests.app.checks.contexts import Examine
from tests.fakes.s3 import new_bucket
from tests.fakes.s3_fixtures import s3

__all__ = ["s3"]


def config(endpoint: str, bucket: str, **more: object) -> str:
    store = {"url": f"s3://{bucket}", "endpoint": endpoint, "access_key": "k", "secret_key": "hush", **more}
    return json.dumps({"workspace": store, "net": {"private_allow": ["127.0.0.1"]}})


def test_without_a_store_there_is_nothing_to_say(examine: Examine) -> None:
    assert examine(check_workspace, "{}", live=True) == []


def test_it_is_tried_with_live_only(examine: Examine, s3: str) -> None:
    (known,) = examine(check_workspace, config(s3, "files"))
    assert (known.level, known.text) == ("ok", f"synchronised with {s3}/files; `doctor --live` tries it")
    (missing,) = examine(check_workspace, config(s3, "nowhere"), live=True)
    assert (missing.level, "there is no such bucket" in missing.text) == ("fail", True)
    (works,) = examine(check_workspace, config(s3, asyncio.run(new_bucket(s3))), live=True)
    assert (works.level, works.text.endswith("which works")) == ("ok", True)


@pytest.mark.parametrize("lacking", ["access_key", "secret_key"])
def test_keys_that_are_missing_are_named(examine: Examine, lacking: str) -> None:
    (finding,) = examine(check_workspace, config("https://s3.example.com", "files", **{lacking: None}))
    assert (finding.level, finding.fix) == ("fail", "set all three")
