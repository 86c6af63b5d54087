"""The `supaclaw` command."""

import os
import sys

from gateway.cli.errors import explain, trace


def main() -> None:
    """Run one command; `up` starts without loading the command-line parser. What it creates is private."""
    os.umask(0o077)
    sys.excepthook = trace if os.environ.get("SUPACLAW_DEBUG") else explain
    if sys.argv[1:] == ["up"]:
        from gateway.cli.process.up import up

        up()
    else:
        from gateway.cli.main import build

        build()(prog_name="supaclaw")


if __name__ == "__main__":
    main()
