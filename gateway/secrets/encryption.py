"""Encrypts values: AES-256-GCM under a key per value, which the master key wraps; both are bound to the secret's facts.
The master key is stored outside the database. Files are encrypted in pieces, under a key that is derived for each."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from itertools import count
from secrets import token_bytes
from typing import TYPE_CHECKING, BinaryIO
from uuid import UUID

from gateway.domain.errors import OwnerMustAct, raising, required
from gateway.secrets.facts import Facts

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


_KEY_BYTES, _CHECK_BYTES = 32, 3


@dataclass(frozen=True, slots=True)
class MasterKey:
    """32 random bytes; `id` distinguishes keys without revealing them."""

    raw: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> "MasterKey":
        """A new random key."""
        return cls(token_bytes(_KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> "MasterKey":
        """Parse a printed key; raises `OwnerMustAct` if a letter is missing or wrong."""
        try:
            raw = base64.b32decode(re.sub(r"[\s-]", "", text).upper())
        except ValueError:
            raw = b""
        key = cls(raw[:_KEY_BYTES])
        if len(raw) != _KEY_BYTES + _CHECK_BYTES or key._check != raw[_KEY_BYTES:]:
            raise OwnerMustAct("this isn't a master key, which has 14 groups of 4 letters and digits; copy all of it")
        return key

    @property
    def id(self) -> str:
        """16 hexadecimal digits."""
        return hashlib.sha256(b"supaclaw master key" + self.raw).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The key for people: groups of letters and digits, the last of which detect mistakes."""
        plain = base64.b32encode(self.raw + self._check).decode()
        return "-".join(plain[at : at + 4] for at in range(0, len(plain), 4))

    @property
    def _check(self) -> bytes:
        return hashlib.sha256(b"check" + self.raw).digest()[:_CHECK_BYTES]


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys that open values; the first one seals. There are several while one replaces another."""

    keys: tuple[MasterKey, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Keyring":
        """Keys between white space, as a file or a variable holds them; raises `OwnerMustAct`."""
        return cls(tuple(map(MasterKey.parse, text.split())))

    @property
    def text(self) -> str:
        """The keys, one per line."""
        return "".join(f"{key.text}\n" for key in self.keys)

    def named(self, key_id: str) -> MasterKey | None:
        """The key with this id."""
        return next((key for key in self.keys if key.id == key_id), None)


_NONCE = 12
_SUPABASE_VAULT = "supabase-vault"
"""Replaces the id of a master key."""


class MasterKeyMissing(OwnerMustAct):
    """The keyring lacks the key of this id."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the secret {name} is encrypted with a different master key than this gateway's; nothing is lost: enter "
            "the recovery key with `supaclaw secrets recover`, or set SUPACLAW_MASTER_KEY to the right one"
        )


class Tampered(OwnerMustAct):
    """The facts in the row differ from those the value was sealed with."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the stored secret {name} was changed outside this program, so it isn't used; "
            f"set it again: `supaclaw secrets set {name}`"
        )


@dataclass(frozen=True, slots=True)
class Envelope:
    """A sealed value: its key, wrapped by the master key named `key_id`, and the value under its key."""

    key_id: str
    wrapped: bytes = field(repr=False)
    sealed: bytes = field(repr=False)

    @classmethod
    def elsewhere(cls, id: UUID) -> "Envelope":
        """The envelope of a value that another vault stores under this id."""
        return cls(_SUPABASE_VAULT, b"", id.bytes)

    @property
    def kept_as(self) -> UUID | None:
        """The id under which another vault stores the value, if one does."""
        return UUID(bytes=self.sealed) if self.key_id == _SUPABASE_VAULT else None


def sign(facts: Facts, value: str) -> str:
    """The text for another vault: the value with its facts."""
    return json.dumps([_about(facts).decode(), value])


def verify_signed(facts: Facts, text: str) -> str:
    """The value in a text of another vault; raises `Tampered` if its facts differ from these."""
    about, value = json.loads(text)
    if about != _about(facts).decode():
        raise Tampered(facts.name)
    return str(value)


def seal(keys: Keyring, facts: Facts, value: str) -> Envelope:
    """Encrypt `value` under a new key, and that under the first master key."""
    own, master = os.urandom(32), keys.keys[0]
    about = _about(facts)
    return Envelope(master.id, _wrap(master, own, about), _encrypt(_aes(own), value.encode(), about))


def unseal(keys: Keyring, facts: Facts, envelope: Envelope) -> str:
    """Decrypt the value; raises `MasterKeyMissing`, or `Tampered` if the facts differ."""
    return _decrypt(_aes(_own_key(keys, facts, envelope)), envelope.sealed, _about(facts), facts.name).decode()


def rewrap(keys: Keyring, facts: Facts, envelope: Envelope) -> Envelope:
    """Wrap the value's key under the first master key; raises as `unseal` does."""
    own, master = _own_key(keys, facts, envelope), keys.keys[0]
    return Envelope(master.id, _wrap(master, own, _about(facts)), envelope.sealed)


SEALED = b"SupaClaw, encrypted 1\n"
"""The beginning of a file that `seal_file` has written."""
_SALT, _KEY_ID, _TAG, _PIECE = 16, 16, 16, 1024 * 1024
_HEAD = len(SEALED) + _KEY_ID + _SALT


def seal_file(key: MasterKey, source: BinaryIO, target: BinaryIO) -> None:
    """Encrypt a file of any size, in pieces of which none can be changed, moved or left out."""
    target.write(head := SEALED + key.id.encode() + os.urandom(_SALT))
    aes = _derived_cipher(key, b"supaclaw files", head)
    target.writelines(aes.encrypt(nonce, piece, head) for nonce, piece in _pieces(source, _PIECE))


def unseal_file(keys: Keyring, source: BinaryIO, target: BinaryIO) -> None:
    """Decrypt a file; raises `OwnerMustAct` if its key isn't there, or if it isn't whole: don't use the target then."""
    from cryptography.exceptions import InvalidTag

    head = source.read(_HEAD)
    if (key := keys.named(head[len(SEALED) : -_SALT].decode("ascii", "replace"))) is None:
        raise OwnerMustAct("the file is encrypted with another master key than this gateway's: use --recovery-key")
    aes = _derived_cipher(key, b"supaclaw files", head)
    changed = OwnerMustAct("the file was changed or cut off after it was encrypted; use another copy of it")
    with raising(changed, InvalidTag):
        target.writelines(aes.decrypt(nonce, piece, head) for nonce, piece in _pieces(source, _PIECE + _TAG))


def _pieces(source: BinaryIO, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield pieces, each with a nonce that says which it is, and whether it is the last."""
    piece = source.read(size)
    for number in count():
        following = source.read(size)
        yield number.to_bytes(_NONCE - 1) + bytes([not following]), piece
        if not following:
            return
        piece = following


def _own_key(keys: Keyring, facts: Facts, envelope: Envelope) -> bytes:
    master = required(keys.named(envelope.key_id), MasterKeyMissing(facts.name))
    return _decrypt(_wrapping_cipher(master), envelope.wrapped, master.id.encode() + _about(facts), facts.name)


def _wrap(master: MasterKey, own: bytes, about: bytes) -> bytes:
    return _encrypt(_wrapping_cipher(master), own, master.id.encode() + about)


def _about(facts: Facts) -> bytes:
    return json.dumps(astuple(facts), default=str, separators=(",", ":")).encode()


def _wrapping_cipher(master: MasterKey) -> "AESGCM":
    return _derived_cipher(master, b"supaclaw secrets: wrapping")


def _derived_cipher(master: MasterKey, purpose: bytes, salt: bytes | None = None) -> "AESGCM":
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return _aes(HKDF(SHA256(), 32, salt, purpose).derive(master.raw))


def _aes(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _encrypt(aes: "AESGCM", plain: bytes, about: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + aes.encrypt(nonce, plain, about)


def _decrypt(aes: "AESGCM", box: bytes, about: bytes, name: str) -> bytes:
    from cryptography.exceptions import InvalidTag

    with raising(Tampered(name), InvalidTag, ValueError):
        return aes.decrypt(box[:_NONCE], box[_NONCE:], about)
