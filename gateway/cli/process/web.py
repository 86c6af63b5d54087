"""`supaclaw web`."""

from gateway.cli.console import echo
from gateway.cli.running import ask


def web() -> None:
    """Print a new sign-in link to the web page. It works once, for ten minutes."""
    echo(ask("/api/login-links", method="POST", timeout=10)["url"])
