"""The installed packages: nothing among them runs by itself whenever a Python starts."""

import sysconfig
from collections.abc import Collection, Iterator
from importlib.metadata import distributions
from pathlib import Path

from gateway.app.checks.context import CheckContext
from gateway.domain.findings import Finding, Level

_EXPECTED = frozenset({"coverage", "setuptools", "virtualenv"})
"""Packages of development whose start-up file is their purpose."""
_CUSTOMIZE = ("sitecustomize.py", "usercustomize.py")


def check_packages(_context: CheckContext, found: Collection[str] | None = None) -> Iterator[Finding]:
    """No package runs code at the start of every Python: that is how hijacked releases take keys."""
    found = startup_code(Path(sysconfig.get_path("purelib"))) if found is None else found
    if found:
        fix = "find out which package brought it, install again from uv.lock, and change your keys"
        yield Finding(Level.FAIL, f"{', '.join(found)}: code that runs whenever Python starts", fix)
    else:
        yield Finding(Level.OK, "no package runs code when Python starts")


def startup_code(packages: Path) -> list[str]:
    """The files of a site-packages folder that Python runs at every start and that no expected package brought."""
    expected = {
        str(file)
        for each in distributions(path=[str(packages)])
        if each.name in _EXPECTED
        for file in each.files or ()
        if file.suffix == ".pth"
    }
    runs = [path for path in packages.glob("*.pth") if path.name not in expected and _has_code(path)]
    return sorted(path.name for path in [*runs, *(packages / name for name in _CUSTOMIZE)] if path.exists())


def _has_code(path: Path) -> bool:
    """A line that begins with `import` is run; any other is a folder to look in (docs.python.org, `site`)."""
    return any(line.startswith(("import ", "import\t")) for line in path.read_text("utf-8", "replace").splitlines())
