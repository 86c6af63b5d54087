"""`supaclaw worker`."""

import os
import sys
from typing import NoReturn

from gateway.config.environment import Environment, read_env_file


def worker() -> NoReturn:
    """Run background tasks of a gateway on its database. It runs until Ctrl-C or SIGTERM."""
    from gateway.app import work

    read_env_file(os.environ, starting=True)
    sys.exit(work(Environment.read(os.environ, starting=True)))
