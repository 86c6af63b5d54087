from dataclasses import replace
from io import BytesIO
from uuid import UUID, uuid4

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.secrets import encryption
from gateway.secrets.encryption import (
    Envelope,
    Keyring,
    MasterKey,
    MasterKeyMissing,
    Tampered,
    rewrap,
    seal,
    seal_file,
    unseal,
    unseal_file,
)
from gateway.secrets.facts import Binding, Facts

KEYS = Keyring((MasterKey.fresh(),))
ADA = PrincipalId(UUID(int=1))

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
bindings = st.builds(
    Binding,
    st.lists(st.sampled_from(["https://a.org:443", "https://b.org:443"]), unique=True).map(tuple),
    st.lists(st.sampled_from(["web_fetch", "weather"]), unique=True).map(tuple),
    st.sampled_from(["", "header:Authorization", "field:refresh_token"]),
)
facts = st.builds(Facts, st.uuids().map(PrincipalId), st.booleans(), names, st.integers(1, 2**31), bindings)


@given(facts, st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_what_is_sealed_is_opened_by_the_same_facts(about: Facts, value: str) -> None:
    assert unseal(KEYS, about, seal(KEYS, about, value)) == value


@given(facts, facts)
def test_no_other_facts_open_it(about: Facts, others: Facts) -> None:
    assume(about != others)
    sealed = seal(KEYS, about, "hush-hush")
    with pytest.raises(Tampered):
        unseal(KEYS, others, sealed)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "B"},
        {"principal": PrincipalId(uuid4())},
        {"version": 2},
        {"shared": True},
        {"binding": Binding(("https://evil.org:443",))},
    ],
)
def test_a_row_that_was_changed_is_refused(change: dict[str, object]) -> None:
    about = Facts(ADA, False, "A", 1, Binding())
    with pytest.raises(Tampered, match="was changed outside"):
        unseal(KEYS, replace(about, **change), seal(KEYS, about, "hush-hush"))  # type: ignore[arg-type]


@given(st.data(), st.sampled_from(["wrapped", "sealed"]))
def test_any_changed_byte_is_noticed(data: st.DataObject, part: str) -> None:
    about = Facts(ADA, False, "A", 1, Binding())
    envelope = seal(KEYS, about, "hush-hush")
    box = bytearray(getattr(envelope, part))
    box[data.draw(st.integers(0, len(box) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Tampered):
        unseal(KEYS, about, replace(envelope, **{part: bytes(box)}))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_nonsense_in_the_row_is_refused_in_one_line(wrapped: bytes, sealed: bytes) -> None:
    with pytest.raises(Tampered) as refused:
        unseal(KEYS, Facts(ADA, False, "A", 1, Binding()), Envelope(KEYS.keys[0].id, wrapped, sealed))
    assert "\n" not in str(refused.value)


def test_parts_of_two_rows_do_not_make_a_third() -> None:
    one, two = Facts(ADA, False, "A", 1, Binding()), Facts(ADA, False, "B", 1, Binding())
    first, second = seal(KEYS, one, "first-value"), seal(KEYS, two, "second-value")
    with pytest.raises(Tampered):
        unseal(KEYS, one, Envelope(first.key_id, first.wrapped, second.sealed))
    with pytest.raises(Tampered):
        unseal(KEYS, one, Envelope(first.key_id, second.wrapped, first.sealed))


def test_another_master_key_is_told_in_one_line_that_says_what_to_do() -> None:
    about = Facts(ADA, False, "A", 1, Binding())
    with pytest.raises(MasterKeyMissing, match=r"nothing is lost.*supaclaw secrets recover"):
        unseal(Keyring((MasterKey.fresh(),)), about, seal(KEYS, about, "hush-hush"))


def test_while_one_master_key_replaces_another_both_open() -> None:
    about, new = Facts(ADA, False, "A", 1, Binding()), MasterKey.fresh()
    old = seal(KEYS, about, "hush-hush")
    both = Keyring((new, *KEYS.keys))
    moved = rewrap(both, about, old)

    assert unseal(both, about, old) == unseal(both, about, moved) == "hush-hush"
    assert unseal(Keyring((new,)), about, moved) == "hush-hush"
    assert moved.sealed == old.sealed


@given(st.binary(min_size=32, max_size=32))
def test_a_recovery_key_is_read_as_it_was_printed(raw: bytes) -> None:
    key = MasterKey(raw)
    assert MasterKey.parse(key.text) == MasterKey.parse(f" {key.text.lower().replace('-', ' ')}\n") == key
    assert raw.hex() not in repr(key)


@given(st.integers(0, 55), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
def test_a_mistyped_letter_is_noticed(at: int, letter: str) -> None:
    plain = KEYS.keys[0].text.replace("-", "")
    assume(plain[at] != letter)
    with pytest.raises(OwnerMustAct, match="isn't a master key"):
        MasterKey.parse(plain[:at] + letter + plain[at + 1 :])


def test_nothing_of_a_value_is_in_a_representation() -> None:
    envelope = seal(KEYS, Facts(ADA, False, "A", 1, Binding()), "hush-hush")
    assert "sealed" not in repr(envelope)
    assert KEYS.keys[0].text not in repr(KEYS)


def opened(sealed: bytes, keys: Keyring = KEYS) -> bytes:
    unseal_file(keys, BytesIO(sealed), plain := BytesIO())
    return plain.getvalue()


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, list[bytes]]:
    """The head of an encrypted file, and its pieces: three whole ones and a half."""
    monkeypatch.setattr(encryption, "_PIECE", 4)
    seal_file(KEYS.keys[0], BytesIO(b"abcdefghijklmn"), sealed := BytesIO())
    head, body = sealed.getvalue()[: encryption._HEAD], sealed.getvalue()[encryption._HEAD :]
    return head, [body[at : at + 20] for at in range(0, len(body), 20)]


def test_a_file_is_opened_by_its_key_alone(pieces: tuple[bytes, list[bytes]]) -> None:
    head, body = pieces
    assert opened(head + b"".join(body)) == b"abcdefghijklmn"
    with pytest.raises(OwnerMustAct, match="another master key"):
        opened(head + b"".join(body), Keyring((MasterKey.fresh(),)))
    for content in (b"", b"abcd", b"abcdefgh"):
        seal_file(KEYS.keys[0], BytesIO(content), sealed := BytesIO())
        assert opened(sealed.getvalue()) == content


@pytest.mark.parametrize("order", ["012", "0123 3", "1023", "0", "", "023", "01233"])
def test_a_file_of_which_pieces_are_gone_moved_or_doubled_is_refused(
    pieces: tuple[bytes, list[bytes]], order: str
) -> None:
    head, body = pieces
    with pytest.raises(OwnerMustAct, match="changed or cut off"):
        opened(head + b"".join(body[int(number)] for number in order if number != " "))


def test_a_changed_byte_of_a_file_is_noticed(pieces: tuple[bytes, list[bytes]]) -> None:
    head, body = pieces
    for at in range(len(head) - 16, len(whole := head + b"".join(body))):
        changed = bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]])
        with pytest.raises(OwnerMustAct):
            opened(changed)
