"""`supaclaw version`."""

from importlib.metadata import version as installed


def version() -> None:
    """Print the version."""
    print(installed("supaclaw"))
