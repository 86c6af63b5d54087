"""The `supaclaw` command."""

import os
import sys

from gateway.cli.terminal.console import print_error, print_traceback


def main() -> None:
    """Run one command; `up` starts without loading the command-line parser. What it creates is private."""
    os.umask(0o077)
    sys.excepthook = print_traceback if os.environ.get("SUPACLAW_DEBUG") else print_error
    if sys.argv[1:] == ["up"]:
        from gateway.cli.process.start import up

        up()
    else:
        from gateway.cli.main import build

        build()(prog_name="supaclaw")


if __name__ == "__main__":
    main()
