"""Tells from a key alone whose it is."""

import re

from gateway.domain.errors import OwnerMustAct
from gateway.llm.catalog import VENDORS, Vendor, vendor

WITH_KEYS = tuple(known for known in VENDORS if known.keys)
_SHORTEST = 16
_OTHERS = {
    r"\d{6,}:[\w-]{30,}": "this is a Telegram bot token; paste it under Telegram, and a model's key here",
    r"xox[a-z]-.+|xapp-.+": "this is a Slack token; paste it under Slack, and a model's key here",
    r"claw_.+": "this is a token of this gateway; paste the key of a model's provider",
    r"sk-(ant-)?admin.+": "this is an admin key, which no model answers to; create an ordinary API key",
}
"""Keys that people paste by mistake, and what to do."""


class UnknownVendor(OwnerMustAct):
    """Several providers have keys like this one, or none known does; `vendors` are those to choose from."""

    def __init__(self, vendors: tuple[Vendor, ...]) -> None:
        titles = " or ".join(each.title for each in vendors)
        which = (
            f"this key may be from {titles}"
            if len(vendors) < len(WITH_KEYS)
            else "this key doesn't look like any provider's"
        )
        super().__init__(f"{which}; choose the provider")
        self.vendors = vendors


def vendor_of(key: str, prefix: str = "") -> Vendor:
    """Whose key it is, or `prefix`'s, if one was chosen; raises `OwnerMustAct`, `UnknownVendor` to have one chosen."""
    for shape, advice in _OTHERS.items():
        if re.fullmatch(shape, key):
            raise OwnerMustAct(advice)
    if len(key) < _SHORTEST or len(key.split()) != 1:
        raise OwnerMustAct(
            "this isn't a whole API key; copy it again from the provider's page, without spaces or quotes"
        )
    likely = tuple(known for known in WITH_KEYS if known.key_shape and re.fullmatch(known.key_shape, key))
    if prefix:
        return _chosen(prefix, likely)
    if len(likely) != 1:
        raise UnknownVendor(likely or WITH_KEYS)
    return likely[0]


def _chosen(prefix: str, likely: tuple[Vendor, ...]) -> Vendor:
    chosen = vendor(prefix)
    if chosen not in WITH_KEYS:
        raise OwnerMustAct(f"{prefix} is not a provider with a key; choose another")
    if len(likely) == 1 and likely[0] != chosen:
        raise OwnerMustAct(f"this key is from {likely[0].title}, not {chosen.title}; create one at {chosen.keys_page}")
    return chosen
