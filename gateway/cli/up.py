"""`supaclaw up`; imports nothing of the command-line parser, so that starting is quick."""

import os
import sys
from typing import NoReturn

from gateway.config.environment import Environment


def up() -> NoReturn:
    """Start the gateway. It runs until Ctrl-C or `supaclaw down`."""
    from gateway.app import run

    sys.exit(run(Environment.read(os.environ)))
