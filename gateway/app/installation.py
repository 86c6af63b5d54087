"""Where the program was installed from, and how a newer version comes beside it."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path

from gateway.domain.errors import OwnerMustAct, explained
from gateway.domain.text.texts import one_line

Program = tuple[str, ...]
"""A command line that a subcommand of supaclaw follows."""

_IMPATIENT = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=30")
"""Git waits forever for a server; uv has a limit by itself."""
_LOCKED = "lib/python3.*/site-packages/gateway/requirements.txt"
_REQUIREMENT = re.compile(r"^supaclaw==(\S+)")
_PREFIX = re.compile("^(error|fatal): ")
_TAG = re.compile(r"v\d+\.\d+\.\d+")
_OTHERS = {
    "uv-receipt.toml": "`uv tool upgrade supaclaw` updates it",
    "pipx_metadata.json": "`pipx upgrade supaclaw` updates it",
}


@dataclass(frozen=True, slots=True)
class Version:
    """A version that can be installed; `requirement` names exactly its bytes."""

    name: str
    requirement: str


def find_installation() -> "Folder | Checkout":
    """The place of this program; raises `OwnerMustAct` with what to do if another program keeps it."""
    source, prefix = Path(__file__).parents[2], Path(sys.prefix)
    if (source / ".git").exists():
        return Checkout(source)
    if (prefix.parent / "uv").is_file() and prefix.name == installed_version("supaclaw"):
        return Folder(prefix.parent)
    for receipt, command in _OTHERS.items():
        if (prefix / receipt).exists():
            raise OwnerMustAct(f"this was installed by another program: {command}")
    if prefix == Path("/app"):
        raise OwnerMustAct("a container can't replace its own image: pull the newer one, and start it again")
    raise OwnerMustAct("this was installed by pip; `pip install --upgrade supaclaw` updates it")


def start_update(data: Path, program: "Program | None" = None) -> subprocess.Popen[bytes]:
    """Start `supaclaw update`, which stops this gateway; raises `OwnerMustAct` where that can't replace the program."""
    find_installation()
    if "INVOCATION_ID" in os.environ:
        raise OwnerMustAct("systemd would end the update with the gateway; run `supaclaw update` in a terminal")
    with open(os.open(data / "update.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        command, end = (*(program or program_of()), "update"), subprocess.STDOUT
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=end, start_new_session=True)


def run(*command: str | Path, standard_input: str = "", environ: dict[str, str] | None = None) -> str:
    """The output of a command; raises `OwnerMustAct` with its last words if it fails."""
    with explained(f"{command[0]} can't be run"):
        done = subprocess.run(command, input=standard_input, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}".splitlines()
        lines = [line.strip().removeprefix("supaclaw: ") for line in said if line.strip()]
        causes = [line for line in lines if line.startswith(("error:", "fatal:", "Caused by:"))] or lines[-1:]
        told = ": ".join(_PREFIX.sub("", each) for each in dict.fromkeys((*causes[:1], *causes[-1:])))
        raise OwnerMustAct(one_line(told or "it said nothing", 300))
    return done.stdout


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder for each version, made by install.sh, with uv beside them, and a link to the program in use."""

    folder: Path

    def newest(self) -> Version | None:
        """The newest of the package index, if it is higher; raises `OwnerMustAct` if that doesn't answer."""
        current = installed_version("supaclaw")
        command = "pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--generate-hashes"
        told = self._uv(*command, "--python", sys.executable, "-", standard_input=f"supaclaw>={current}\n")
        found = _REQUIREMENT.search(told)
        return Version(found[1], told) if found and found[1] != current else None

    def install(self, version: Version) -> Program:
        """Install it beside the one in use, or raise `OwnerMustAct` and leave nothing of it behind.

        SupaClaw comes by the hash that the index gave, and what it needs by the hashes within it.
        """
        place = self.folder / version.name
        try:
            self._uv("venv", "--quiet", "--clear", "--python", os.path.realpath(sys.executable), place)
            options = "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--python", place
            self._uv(*options, "--no-deps", "--requirement", "-", standard_input=version.requirement)
            self._uv(*options, "--compile-bytecode", "--requirement", *place.glob(_LOCKED))
        except OwnerMustAct:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return program_of(place / "bin" / "python")

    def use(self, version: Version) -> Program:
        """Lead the link there."""
        return self._link(self.folder / version.name / "bin")

    def go_back(self) -> Program:
        """Lead the link back."""
        return self._link(Path(sys.prefix) / "bin")

    def _link(self, programs: Path) -> Program:
        link = Path.home() / ".local" / "bin" / "supaclaw"
        draft = link.with_name(".supaclaw.new")
        with explained(f"{link} can't be changed"):
            draft.unlink(missing_ok=True)
            draft.symlink_to(programs / "supaclaw")
            draft.replace(link)
        return program_of(programs / "python")

    def _uv(self, *arguments: str | Path, standard_input: str = "") -> str:
        return run(self.folder / "uv", *arguments, standard_input=standard_input)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A clone of the repository, set up by make; a newer version is tried in a work tree of its own."""

    root: Path

    @property
    def _beside(self) -> Path:
        return self.root / "build" / "update"

    def newest(self) -> Version | None:
        """The highest tag of the repository that it was cloned from."""
        if self._git("status", "--porcelain", "--untracked-files=no"):
            raise OwnerMustAct(f"{self.root} has changes of yours; commit or undo them first (`git status`)")
        self._git(*_IMPATIENT, "fetch", "--quiet", "--tags", "origin")
        tags = sorted(filter(_TAG.fullmatch, self._git("tag", "--list").splitlines()), key=_numbers)
        current = _numbers(installed_version("supaclaw"))
        return Version(tags[-1].removeprefix("v"), tags[-1]) if tags and _numbers(tags[-1]) > current else None

    def install(self, version: Version) -> Program:
        """As `make setup` does, with the hashes of uv.lock."""
        self._discard()
        self._git("worktree", "add", "--quiet", "--force", "--detach", str(self._beside), version.requirement)
        try:
            run("make", "--silent", "-C", self._beside, "setup")
        except OwnerMustAct:
            self._discard()
            raise
        return program_of(self._beside / ".venv" / "bin" / "python")

    def use(self, version: Version) -> Program:
        """Check it out; `git checkout -` leads back by hand."""
        self._discard()
        return self._check_out(version.requirement)

    def go_back(self) -> Program:
        """Check out what was there before."""
        return self._check_out("-")

    def _check_out(self, commit: str) -> Program:
        self._git("checkout", "--quiet", commit)
        run("make", "--silent", "-C", self.root, "setup")
        return program_of(self.root / ".venv" / "bin" / "python")

    def _discard(self) -> None:
        shutil.rmtree(self._beside, ignore_errors=True)
        self._git("worktree", "prune")

    def _git(self, *arguments: str) -> str:
        return run("git", "-C", self.root, *arguments)


def program_of(python: Path = Path(sys.executable)) -> Program:
    """The command line of the program with this interpreter; by default, of this one."""
    return (str(python), "-P", "-m", "gateway")
