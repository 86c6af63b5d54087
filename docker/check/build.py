"""The image, built by buildah: no daemon, no registry; what the Dockerfile starts from is made by debootstrap.

What this machine needs to reach the network goes in at build time only: proxies as the build arguments every builder
knows, certificates and the name server as files that are mounted while a step runs.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field

from docker.check.lint import ROOT
from docker.check.shell import run

BASE = "docker.io/library/debian:bookworm-slim"
IMAGE = "localhost/supaclaw:check"
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
MOUNTED = ("/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/etc/pip.conf", "/etc/uv/uv.toml")


class Healthcheck(BaseModel):
    """How the image asks whether it is well."""

    test: list[str] = Field(alias="Test")


class Settings(BaseModel):
    """What the image says of itself, as Docker will read it."""

    user: str = Field(alias="User")
    env: list[str] = Field(alias="Env")
    entrypoint: list[str] = Field(alias="Entrypoint")
    command: list[str] = Field(alias="Cmd")
    folder: str = Field(alias="WorkingDir")
    volumes: dict[str, object] = Field(alias="Volumes")
    stop_signal: str = Field(alias="StopSignal")
    healthcheck: Healthcheck = Field(alias="Healthcheck")


class _Docker(BaseModel):
    config: Settings


class _Inspected(BaseModel):
    docker: _Docker = Field(alias="Docker")


@dataclass(frozen=True, slots=True)
class Builder:
    """Keeps everything below `folder`."""

    folder: Path

    @property
    def base(self) -> Path:
        """The files of the base image."""
        return self.folder / "base"

    def make_base(self) -> None:
        """A Debian from the mirror this machine uses; kept for the next time."""
        if not self.base.exists():
            draft = self.folder / "base.new"
            shutil.rmtree(draft, ignore_errors=True)
            run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(draft), _mirror())
            for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
                shutil.rmtree(draft / leftover)
            draft.rename(self.base)
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", container, str(self.base), "/")
        self.buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self.buildah("commit", "--quiet", "--rm", container, BASE)

    def build(self) -> None:
        """The Dockerfile as it is."""
        files = [f"--volume={path}:{path}:ro" for path in MOUNTED if Path(path).exists()]
        names = [*PROXIES, *map(str.upper, PROXIES)]
        proxies = [f"--build-arg={name}={os.environ[name]}" for name in names if os.environ.get(name)]
        dockerfile = ROOT / "docker" / "Dockerfile"
        self.buildah(
            *("build", "--pull-never", "--format=docker", "--isolation=chroot", f"--file={dockerfile}"),
            *(f"--tag={IMAGE}", *files, *proxies, str(ROOT)),
            show=" STEP ",
        )

    def settings(self) -> Settings:
        """Of the built image."""
        return _Inspected.model_validate_json(self.history()).docker.config

    def history(self) -> str:
        """Everything the image tells of how it was made."""
        return self.buildah("inspect", "--type=image", IMAGE)

    def size(self) -> str:
        """As `docker images` shows it."""
        return self.buildah("images", "--noheading", "--format={{.Size}}", IMAGE).strip()

    def unpacked(self) -> Path:
        """The image's files, in a fresh container that is the only one."""
        self.buildah("rm", "--all")
        self.buildah("rmi", "--prune")
        return Path(self.buildah("mount", self.buildah("from", "--pull-never", IMAGE).strip()).strip())

    def buildah(self, *arguments: str, show: str = "") -> str:
        """What it printed."""
        places = (f"--root={self.folder / 'store'}", f"--runroot={self.folder / 'run'}", "--storage-driver=vfs")
        return run("buildah", *places, *arguments, show=show)


def _mirror() -> str:
    """Where this machine gets its packages from."""
    sources = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Codename: bookworm", "Component: main")
    found = run(*sources, ok=False).split()
    return os.environ.get("MIRROR") or (found[0] if found else "http://deb.debian.org/debian")
