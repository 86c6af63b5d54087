"""`supaclaw up`; does not import the command-line parser, for a fast start."""

import os
import sys
from typing import NoReturn

from gateway.config.environment import Environment


def up() -> NoReturn:
    """Start the gateway. It runs until Ctrl-C or `supaclaw down`."""
    from gateway.app import run

    sys.exit(run(Environment.read(os.environ)))
