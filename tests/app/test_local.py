import socket
from pathlib import Path

import pytest

from gateway.app.local import (
    is_secret,
    listen,
    listen_as_configured,
    local_token,
    page_name,
    reserve_other_loopback,
    url,
)
from gateway.config.model import WebSettings
from gateway.domain.errors import OwnerMustAct


def test_a_port_in_use_says_what_to_set() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(OwnerMustAct, match="SUPACLAW_PORT"):
        listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_other_machines_can_reach_is_refused(host: str) -> None:
    with pytest.raises(OwnerMustAct, match="other machines"):
        listen(host, 0)


CODE = "0123456789abcdef" * 2
BEHIND = {
    "host": "0.0.0.0",
    "port": 0,
    "public_url": "https://claw.example.org",
    "proxies": "10.0.0.0/8, fd00::/8",
}


def test_behind_a_named_proxy_with_a_code_it_may_listen_for_other_machines() -> None:
    with listen_as_configured(WebSettings.model_validate(BEHIND), CODE) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"
        assert url(listening).startswith("http://127.0.0.1:")
        with reserve_other_loopback(listening):
            pass


@pytest.mark.parametrize(
    ("left_out", "code", "told"),
    [
        ("public_url", CODE, "also needs SUPACLAW_PUBLIC_URL"),
        ("proxies", CODE, "other machines"),
        ("", "", "also needs SUPACLAW_SIGN_IN_CODE"),
        ("", "short", "too weak"),
        ("", "a" * 64, "too weak"),
    ],
)
def test_a_public_start_that_lacks_anything_is_refused(left_out: str, code: str, told: str) -> None:
    web = WebSettings.model_validate({key: value for key, value in BEHIND.items() if key != left_out})
    with pytest.raises(OwnerMustAct, match=told) as refusal:
        listen_as_configured(web, code)
    assert not code or code not in str(refusal.value)


def test_who_connects_before_anyone_answers_waits() -> None:
    with listen("127.0.0.1", 0) as waiting, socket.create_connection(waiting.getsockname(), timeout=5) as early:
        assert url(waiting) == f"http://127.0.0.1:{early.getpeername()[1]}"


def test_the_local_token_is_for_our_eyes_and_new_at_every_start(tmp_path: Path) -> None:
    first, second = local_token(tmp_path), local_token(tmp_path)
    file = tmp_path / "keys" / "local-token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() == second != first


@pytest.mark.parametrize(("name", "hidden"), [("OPENAI_API_KEY", True), ("TELEGRAM_TOKEN", True), ("HOME", False)])
def test_keys_in_the_environment_are_known_by_their_names(name: str, hidden: bool) -> None:
    assert is_secret(name) is hidden


@pytest.mark.parametrize("torn", [b"", b"\0" * 31, b"\xff\xfe", b"claw-12"])
def test_the_pages_name_stays_unless_a_power_cut_tore_it(tmp_path: Path, torn: bytes) -> None:
    assert (name := page_name(tmp_path)) == page_name(tmp_path)
    (tmp_path / "keys" / "page-name").write_bytes(torn)
    assert (anew := page_name(tmp_path)) not in {name, ""}
    assert page_name(tmp_path) == anew
