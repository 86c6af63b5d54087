"""How a screen is looked at: both sizes and both schemes, in two runs."""

import pytest

looks = pytest.mark.parametrize(
    ("scheme", "phone"), [("light", False), ("dark", True)], ids=["light-desktop", "dark-phone"]
)
