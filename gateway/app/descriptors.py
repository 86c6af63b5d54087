"""How many files and connections this process, and what it starts, may have open at once."""

import resource
from contextlib import suppress

from gateway.domain.errors import OwnerMustAct

NEEDED = 128
WANTED = 4096


def allow_descriptors() -> None:
    """Raise the soft limit as far as the system lets us; `OwnerMustAct`: that is not far enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < WANTED:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, WANTED), hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed < NEEDED:
        raise OwnerMustAct(
            f"at most {allowed} files may be open at once, and the gateway needs {NEEDED}: run `ulimit -n 1024` first, "
            "or set LimitNOFILE=1024 for its service"
        )
