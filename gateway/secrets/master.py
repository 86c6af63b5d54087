"""The master key: it wraps the key of each value and is kept outside the database."""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from secrets import token_bytes

from gateway.domain.errors import OwnerMustAct

_BYTES, _SUM = 32, 3


@dataclass(frozen=True, slots=True)
class MasterKey:
    """32 random bytes; `id` tells keys apart and nothing about them."""

    raw: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> "MasterKey":
        """A new one."""
        return cls(token_bytes(_BYTES))

    @classmethod
    def parse(cls, text: str) -> "MasterKey":
        """The key as it was printed; raises `OwnerMustAct` for one with a letter too few or another one."""
        plain = re.sub(r"[\s-]", "", text).upper()
        try:
            raw = base64.b32decode(plain)
        except ValueError:
            raw = b""
        key = cls(raw[:_BYTES])
        if len(raw) != _BYTES + _SUM or key._check != raw[_BYTES:]:
            raise OwnerMustAct("this isn't a master key, which has 14 groups of 4 letters and digits; copy all of it")
        return key

    @property
    def id(self) -> str:
        """16 hexadecimal digits."""
        return hashlib.sha256(b"supaclaw master key" + self.raw).hexdigest()[:16]

    @property
    def text(self) -> str:
        """As people keep it: groups of letters and digits, the last of which catch a mistake."""
        plain = base64.b32encode(self.raw + self._check).decode()
        return "-".join(plain[at : at + 4] for at in range(0, len(plain), 4))

    @property
    def _check(self) -> bytes:
        return hashlib.sha256(b"check" + self.raw).digest()[:_SUM]


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys that open values; the first one seals. Several while one replaces another."""

    keys: tuple[MasterKey, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Keyring":
        """Keys between white space, as a file or a variable holds them; raises `OwnerMustAct`."""
        return cls(tuple(map(MasterKey.parse, text.split())))

    @property
    def text(self) -> str:
        """One a line."""
        return "".join(f"{key.text}\n" for key in self.keys)

    def named(self, key_id: str) -> MasterKey | None:
        """The key with this id."""
        return next((key for key in self.keys if key.id == key_id), None)
