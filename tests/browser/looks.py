"""How a screen is looked at: both sizes and both schemes, in two runs, of which the second is thorough."""

import pytest

looks = pytest.mark.parametrize(
    ("scheme", "phone"),
    [("light", False), pytest.param("dark", True, marks=pytest.mark.thorough)],
    ids=["light-desktop", "dark-phone"],
)
