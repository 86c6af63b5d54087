"""The `supaclaw` command."""

import os
import sys

from gateway.cli.errors import explain


def main() -> None:
    """Run one command; `up` starts without loading the command-line parser."""
    if not os.environ.get("SUPACLAW_DEBUG"):
        sys.excepthook = explain
    if sys.argv[1:] == ["up"]:
        from gateway.cli.up import up

        up()
    else:
        from gateway.cli.main import build

        build()(prog_name="supaclaw")


if __name__ == "__main__":
    main()
