"""`supaclaw up`; does not import the command-line parser, for a fast start."""

import os
import sys
from typing import NoReturn

from gateway.config.environment import Environment, check_only_agent, read_env_file


def up() -> NoReturn:
    """Start the gateway. It runs until Ctrl-C or `supaclaw down`."""
    from gateway.app import run

    read_env_file(os.environ, starting=True)
    environment = Environment.read(os.environ, starting=True)
    check_only_agent(os.environ, environment.data)
    sys.exit(run(environment))
