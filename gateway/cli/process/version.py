"""`supaclaw version`."""

from importlib.metadata import version as installed

from gateway.cli.console import echo


def version() -> None:
    """Print the version."""
    echo(installed("supaclaw"))
