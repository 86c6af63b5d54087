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
        _import_structlog()
        from gateway.cli.process.start import up

        up()
    else:
        from gateway.cli.main import build

        build()(prog_name="supaclaw")


def _import_structlog() -> None:
    """Import it without rich: 80 modules, 5 MB, for tracebacks in colours, which no log here has."""
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    modules["rich"] = None
    import structlog  # noqa: F401

    del modules["rich"]


if __name__ == "__main__":
    main()
