"""A file is read in a child of its own, which sees that file, its output folder, and the libraries that read."""

import mimetypes
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import PurePath

import gateway
from gateway.domain.json import Json
from gateway.ingest import ocr, reading
from gateway.ingest.limits import MEMORY, SECONDS, SPACE
from gateway.sandbox.child import Jail, run_in_jail

_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share"),
    *("/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/proc/cpuinfo", "/sys/devices/system/cpu"),
)
_LIBRARIES: Mapping[str, Sequence[str]] = {
    ".pdf": ("pypdfium2", "encodings.utf_16_le"),
    ".docx": ("mammoth",),
    ".pptx": ("pptx",),
    ".xlsx": ("openpyxl",),
}
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"})


def read(source: str, target: str, name: str, mime: str) -> Json:
    """As `reading.read`, in a jail; the job of the CPU process. Raises `Ended`."""
    prepare(name)
    return in_jail(partial(reading.read, source, target, name, mime), source, target)


def in_jail(work: Callable[[], Json], source: str, target: str, seconds: float = SECONDS) -> Json:
    """What `work` answers where nothing but these two can be reached."""
    packages = (path for path in sys.path if path.endswith("-packages"))
    reads = (*_SYSTEM, sysconfig.get_path("stdlib"), *packages, *gateway.__path__, source)
    return run_in_jail(Jail(reads, target, MEMORY, seconds, SPACE), work)


def prepare(name: str) -> None:
    """Load what a file of this name will need: its child, and those of later files, then start with it."""
    mimetypes.init()
    if sys.platform != "linux":
        return  # elsewhere, what these libraries begin does not survive a fork
    suffix = PurePath(name).suffix.lower()
    for library in _LIBRARIES.get(suffix, ()):
        import_module(library)
    if suffix == ".pdf" or suffix in _PICTURES:
        from PIL import Image

        Image.preinit()
    if suffix in _PICTURES:
        ocr.engine()
