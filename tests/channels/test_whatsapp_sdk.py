"""neonize is imported without what it asks of the system, and only when a WhatsApp is configured."""

import subprocess
import sys

WITHOUT_LIBMAGIC = """
import ctypes, ctypes.util, logging, sys
load = ctypes.CDLL.__init__
def refuse(self, name, *rest, **more):
    if name and "magic" in str(name):
        raise OSError("no such library")
    load(self, name, *rest, **more)
ctypes.CDLL.__init__ = refuse
ctypes.util.find_library = lambda name: None
try:
    import magic
except ImportError as error:
    print(error)
from channels.whatsapp.sdk import preload
preload()
print(logging.getLogger().handlers)
"""

NOT_IMPORTED = """
import sys
import channels.whatsapp
from channels.whatsapp import Settings, create
from pathlib import Path
create(Settings(), commands=[], log=None, data=Path("/nowhere"), facts=None)
print([name for name in sys.modules if name.startswith(("neonize", "google.protobuf", "magic", "PIL"))])
"""


def said_by(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_neonize_works_where_libmagic_is_missing() -> None:
    assert said_by(WITHOUT_LIBMAGIC) == [
        "failed to find libmagic.  Check your installation",
        "[]",
    ]


def test_a_channel_that_is_not_open_has_imported_nothing() -> None:
    assert said_by(NOT_IMPORTED) == ["[]"]
