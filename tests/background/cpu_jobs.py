"""Jobs for the CPU process that behave well and badly; the process imports this module and nothing of pytest."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gateway.domain.errors import OwnerMustAct, TryAgainLater


def double(number: int) -> int:
    return number * 2


def echo(value: object) -> object:
    return value


def process_id() -> int:
    return os.getpid()


def environment() -> dict[str, str]:
    return dict(os.environ)


def facts() -> dict[str, object]:
    return {
        "nice": os.nice(0),
        "interrupt ignored": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "cwd": os.getcwd(),
        "loaded": sorted(name for name in sys.modules if name.partition(".")[0] in {"asyncio", "aiogram", "litellm"}),
    }


def chatty() -> str:
    print("not a reply")
    os.write(1, b"\0\0\0\1x")
    subprocess.run(["echo", "neither"], check=True)
    return "reply"


def input_of_its_own() -> str:
    return sys.stdin.read()


def broken() -> None:
    raise ValueError("the file is no picture")


def refused() -> None:
    raise OwnerMustAct("mend it")


def later() -> None:
    raise TryAgainLater("not now")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hog(size: int) -> int:
    return len(bytearray(size))


def hang(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    while True:
        time.sleep(1)


def commit_that_hangs(workspace: str, *_: object) -> None:
    hang(str(Path(workspace) / "mark"))


def spin(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    while True:
        pass


def no_json() -> object:
    return {1, 2}


class Holder:
    @staticmethod
    def method() -> None:
        """Not at the top of a module."""
