import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import OwnerMustAct
from gateway.secrets.facts import Binding, origin_of
from gateway.secrets.injection import Outgoing, SecretRefused, Usable, inject

BOUND = Binding.of(["api.example.org"], ["weather"], "header:Authorization")
KEY = Usable("hush-hush-hush", BOUND)
TOKEN = Usable("refresh-me", Binding.of(["auth.example.org"], ["weather"], "field:refresh_token"))
STORED = {"KEY": KEY, "TOKEN": TOKEN}
REFERENCE = "${secret:KEY}"


def request(**more) -> Outgoing:
    return Outgoing(**{"method": "GET", "url": "https://api.example.org/v1", **more})


def test_a_value_goes_into_its_header_toward_its_host_for_its_tool() -> None:
    sent = inject(request(headers={"authorization": f"Bearer {REFERENCE}", "Accept": "*/*"}), "weather", STORED.get)

    assert sent.request.headers == {"authorization": "Bearer hush-hush-hush", "Accept": "*/*"}
    assert sent.used == {"KEY"}
    assert "hush" not in repr(sent)


def test_a_value_goes_into_its_field_of_a_token_request() -> None:
    asked = request(
        method="POST",
        url="https://auth.example.org:443/token",
        fields={"grant_type": "refresh_token", "refresh_token": "${secret:TOKEN}"},
    )
    assert inject(asked, "weather", STORED.get).request.fields["refresh_token"] == "refresh-me"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request(url=f"https://api.example.org/{REFERENCE}"), "the address"),
        (request(url=f"https://api.example.org/?q={REFERENCE}"), "the address"),
        (request(url="https://api.example.org/?q=%24%7Bsecret%3AKEY%7D"), "the address"),
        (request(body=f"my key is {REFERENCE}"), "the body"),
        (request(body="${ SECRET:KEY }"), "the body"),
        (request(method=REFERENCE), "the method"),
        (request(headers={REFERENCE: "x"}), "the name of a header"),
        (request(fields={REFERENCE: "x"}), "the name of a field"),
        (request(headers={"X-Echo": REFERENCE}), "can only be sent as header:Authorization"),
        (request(fields={"authorization": REFERENCE}), "can only be sent as header:Authorization"),
        (request(headers={"Authorization": "${secret: KEY}"}), "is written"),
        (request(headers={"Authorization": "${secret:NONE}"}), "no secret NONE"),
        (request(url="https://evil.example/", headers={"Authorization": REFERENCE}), "isn't bound to https://evil"),
        (request(url="http://api.example.org/", headers={"Authorization": REFERENCE}), "isn't bound to http://"),
        (request(url="https://api.example.org:8443/", headers={"Authorization": REFERENCE}), "isn't bound"),
        (request(url="https://api.example.org@evil.example/", headers={"Authorization": REFERENCE}), "plain"),
        (request(url="https://evil.example\\@api.example.org/", headers={"Authorization": REFERENCE}), "plain"),
        (request(url="https://api.example.org.evil.example/", headers={"Authorization": REFERENCE}), "isn't bound"),
        (request(headers={"Authorization": REFERENCE, "Host": "evil.example"}), "header Host"),
    ],
)
def test_a_reference_anywhere_else_is_refused(asked: Outgoing, why: str) -> None:
    with pytest.raises(SecretRefused, match=why) as refused:
        inject(asked, "weather", STORED.get)
    assert "hush" not in str(refused.value)


def test_another_tool_gets_nothing() -> None:
    with pytest.raises(SecretRefused, match="isn't bound to the tool web_fetch"):
        inject(request(headers={"Authorization": REFERENCE}), "web_fetch", STORED.get)


def test_what_is_bound_to_nothing_goes_nowhere() -> None:
    with pytest.raises(SecretRefused):
        inject(request(headers={"Authorization": REFERENCE}), "weather", {"KEY": Usable("v", Binding())}.get)


def test_a_value_cannot_add_a_header() -> None:
    with pytest.raises(SecretRefused, match="allowed in a header"):
        inject(request(headers={"Authorization": REFERENCE}), "weather", {"KEY": Usable("a\r\nX: y", BOUND)}.get)


@given(
    st.fixed_dictionaries(
        {
            part: st.text(alphabet="ab/?&{}$:% \\@") | st.just(REFERENCE) | st.just(f"x{REFERENCE}y")
            for part in ("method", "url", "body", "name", "value", "field")
        }
    ),
    st.sampled_from(["weather", "other"]),
)
def test_no_request_of_any_shape_carries_a_value_elsewhere(parts: dict[str, str], tool: str) -> None:
    asked = Outgoing(
        parts["method"], parts["url"], {parts["name"]: parts["value"]}, {"f": parts["field"]}, parts["body"]
    )
    try:
        sent = inject(asked, tool, STORED.get)
    except SecretRefused:
        return
    assert sent.request == asked
    assert not sent.used


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("API.example.org", "https://api.example.org:443"),
        ("https://api.example.org/", "https://api.example.org:443"),
        ("api.example.org:8443", "https://api.example.org:8443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_a_host_is_an_origin(host: str, origin: str) -> None:
    assert origin_of(host) == origin


@pytest.mark.parametrize("host", ["", "*", "*.example.org", "a b", "https://u:p@h/", "h/path", "ftp://h", "h:99999"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(OwnerMustAct):
        origin_of(host)
