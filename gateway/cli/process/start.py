"""`supaclaw up` and `supaclaw worker`; doesn't import the command-line parser, for a fast start."""

import gc
import os
import sys
from typing import NoReturn

from gateway.config.environment import Environment, check_only_agent, read_env_file


def up() -> NoReturn:
    """Start the gateway. It runs until Ctrl-C or `supaclaw down`."""
    gc.disable()  # collections would take a tenth of the time of these imports, and find nothing that is large
    from gateway.app.start import run

    gc.freeze()
    gc.enable()
    read_env_file(os.environ, starting=True)
    environment = Environment.read(os.environ, starting=True)
    check_only_agent(os.environ, environment.data)
    sys.exit(run(environment))


def worker() -> NoReturn:
    """Run background tasks of a gateway on its database. It runs until Ctrl-C or SIGTERM."""
    from gateway.app.worker import work

    read_env_file(os.environ, starting=True)
    sys.exit(work(Environment.read(os.environ, starting=True)))
