"""`make check-image`: needs root, apt, and a kernel with namespaces; no container engine."""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from docker.check.build import Builder
from docker.check.journey import journey
from docker.check.lint import lint
from docker.check.scan import scan
from docker.check.shell import check, run, step

FOLDER = Path(os.environ.get("SUPACLAW_CHECK") or "/var/tmp/supaclaw-check")
"""Some gigabytes; the base image and the layers in it make the next time quicker."""


def main() -> None:
    """Every check, one after another."""
    if os.geteuid() != 0:
        sys.exit("run this as root: it makes a system of its own to build on")
    FOLDER.mkdir(exist_ok=True, parents=True)
    builder = Builder(FOLDER)
    with step("the Dockerfile and the compose file"):
        lint()
    with step("what it needs of this machine"):
        missing = [name for name in ("buildah", "debootstrap") if not shutil.which(name)]
        if missing:
            run("apt-get", "-qq", "update")
            run("apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing)
    with step("a base to build on"):
        builder.make_base()
    with step("the image"):
        builder.build()
        check(True, f"it has {builder.size()}")
    root, settings = builder.unpacked(), builder.settings()
    with step("what is in it"):
        scan(builder, root, settings)
    with step("what it does"), tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        asyncio.run(journey(root, settings, Path(folder)))
    sys.stdout.write("the image is good\n")


main()
