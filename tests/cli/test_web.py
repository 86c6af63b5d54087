from tests.cli.conftest import Supaclaw


def test_a_fresh_link_is_printed(supaclaw: Supaclaw, running: dict[str, str]) -> None:
    running["POST /api/login-links"] = '{"url": "http://127.0.0.1:1/login#abc", "expires_in": 600}'

    assert supaclaw("web").out == "http://127.0.0.1:1/login#abc\n"
