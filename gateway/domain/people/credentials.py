"""How keys, tokens and passwords look, wherever they are."""

import re

SHAPES = re.compile(
    r"(?P<kept>\bBearer\s+)[\w.~+/=-]{8,}"
    r"|(?P<bot>\bbot)?\d{6,}:[\w-]{30,}"
    r"|\b(?:sk|claw|xox[abp]|xapp|ghp|AIza)[-_]?[\w-]{12,}"
    r"|(?P<user>://[^\s:/@]+:)[^\s/@]+(?=@)"
)
"""The groups are what may be shown around them."""
