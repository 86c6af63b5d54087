"""What neonize needs before it is called: to be imported without the library it asks for, and a network."""

import asyncio
import logging
import os
import sys
from importlib import import_module
from io import StringIO
from threading import Lock
from types import ModuleType
from urllib.request import getproxies

MAX_FILE = 64 * 2**20
"""Bytes; neonize holds a file in memory, as a whole."""

HOST, PORT = "web.whatsapp.com", 443
REACH_SECONDS = 10.0

_lock = Lock()


def preload() -> None:
    """Import neonize; half a second of work and 60 MB, so call it in a thread, any number of times."""
    with _lock:
        if "neonize.aioze.client" in sys.modules:
            return
        try:
            import_module("magic")
        except ImportError:  # there is no libmagic; neonize asks it for types that this channel always tells
            sys.modules["magic"] = ModuleType("magic")
        _import_quietly("neonize.aioze.client")
        # what Go logs holds addresses of people; it is told the level of the second of these
        for name in ("neonize", "neonize.utils.log", "whatsmeow", "Whatsmeow.Database"):
            logging.getLogger(name).setLevel(logging.ERROR)


def _import_quietly(name: str) -> None:
    """neonize calls `basicConfig`, which spares a root logger that has a handler, and leaves a pipe to `uname` open."""
    root, silence, popen = logging.getLogger(), logging.NullHandler(), os.popen
    root.addHandler(silence)
    vars(os)["popen"] = lambda _: StringIO()
    try:
        import_module(name)
    finally:
        vars(os)["popen"] = popen
        root.removeHandler(silence)


def one_line(error: object) -> str:
    """What Go says about a failure, for people."""
    return " ".join(str(error).split())[:300]


async def reach() -> None:
    """Raises `OSError` when WhatsApp cannot be reached: each try of neonize itself costs a file handle for good."""
    if getproxies().get("https"):
        return
    async with asyncio.timeout(REACH_SECONDS):
        _, writer = await asyncio.open_connection(HOST, PORT)
    writer.close()
