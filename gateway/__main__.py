"""The `supaclaw` command."""

import os
import sys
from types import ModuleType
from typing import cast

from gateway.cli.terminal.console import print_error, print_traceback


def main() -> None:
    """Run one command; `up` starts without loading the command-line parser. What it creates is private."""
    os.umask(0o077)
    sys.excepthook = print_traceback if os.environ.get("SUPACLAW_DEBUG") else print_error
    if sys.argv[1:] == ["up"]:
        modules = cast("dict[str, ModuleType | None]", sys.modules)
        modules["rich"] = None  # structlog would import it, 80 modules and 5 MB, for colours that we don't use
        from gateway.cli.process.start import up

        del modules["rich"]
        up()
    else:
        from gateway.cli.main import build

        build()(prog_name="supaclaw")


if __name__ == "__main__":
    main()
