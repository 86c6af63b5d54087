"""Importing neonize, without the library that it asks for, and checking the network before it is called."""

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
"""Bytes; neonize holds a whole file in memory."""
OFFLINE_PAUSE = 5.0
"""Seconds until a message is sent again that failed without a connection."""

HOST, PORT = "web.whatsapp.com", 443
REACH_SECONDS = 10.0

_lock = Lock()


def preload() -> None:
    """Import neonize. It takes 0.5 s and 60 MB, so call it in a thread; repeated calls do nothing."""
    with _lock:
        if "neonize.aioze.client" in sys.modules:
            return
        try:
            import_module("magic")
        except ImportError:  # without libmagic, which neonize uses only for types that this channel always gives
            sys.modules["magic"] = ModuleType("magic")
        _import_quietly("neonize.aioze.client")
        # Go logs addresses of people, at the level of the second of these loggers
        for name in ("neonize", "neonize.utils.log", "whatsmeow", "Whatsmeow.Database"):
            logging.getLogger(name).setLevel(logging.ERROR)


def _import_quietly(name: str) -> None:
    """Import without two side effects of neonize: it calls `basicConfig`, and leaves a pipe to `uname` open."""
    root, silence, popen = logging.getLogger(), logging.NullHandler(), os.popen
    root.addHandler(silence)
    vars(os)["popen"] = lambda _: StringIO()
    try:
        import_module(name)
    finally:
        vars(os)["popen"] = popen
        root.removeHandler(silence)


async def reach() -> None:
    """Raise `OSError` if WhatsApp can't be reached: each attempt of neonize itself leaks a file handle."""
    if getproxies().get("https"):
        return
    async with asyncio.timeout(REACH_SECONDS):
        _, writer = await asyncio.open_connection(HOST, PORT)
    writer.close()
