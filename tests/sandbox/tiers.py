"""Which jails this kernel can build."""

import os
from functools import cache

from gateway.sandbox.jail import landlock, seccomp


@cache
def confines() -> bool:
    return bool(landlock.abi()) and seccomp.supported() and os.uname().sysname == "Linux"
