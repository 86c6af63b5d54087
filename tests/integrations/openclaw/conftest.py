import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Done, Supaclaw, place, supaclaw
from tests.importers.test_storing import workspace

__all__ = ["place", "supaclaw"]

PROGRAM = """#!{python}
import json, os, sys
from pathlib import Path

state = Path(os.environ["OPENCLAW_STATE_DIR"])
says = json.loads((state.parent / "openclaw.says").read_text())
if sys.argv[1:] == ["--version"]:
    print(says["version"])
elif sys.argv[1:3] == ["config", "validate"]:
    text = (state / "openclaw.json").read_text()
    if says["fills"] and says["fills"] in text:
        with open(state.parent / "filler", "ab", buffering=0) as filler:
            for size in (2**16, 1):
                try:
                    while filler.write(bytes(size)):
                        pass
                except OSError:
                    pass
    bad = [word for word in says["rejects"] if word in text]
    print(json.dumps({{"valid": not bad, "issues": [f"Unrecognized key: {{word}}" for word in bad]}}))
elif sys.argv[1:3] == ["plugins", "inspect"]:
    slot = json.loads((state / "openclaw.json").read_text())["plugins"]["slots"]["memory"]
    loaded = (state / "extensions" / slot / "index.js").exists()
    print(json.dumps({{"plugin": {{"status": says["status"] if loaded else "missing", "memorySlotSelected": loaded}}}}))
elif sys.argv[1:3] == ["hooks", "list"]:
    print(json.dumps({{"hooks": [{{"name": "boot-md", "eligible": True}}, {{"name": "off", "eligible": False}}]}}))
"""
BEFORE = '{\n  // mine\n  gateway: {port: 1},\n  "plugins": {"allow": ["browser"]},\n}\n'


@dataclass(frozen=True)
class Installation:
    """A stand-in for OpenClaw: a state, a workspace, and a program that answers as the real one does."""

    home: Path
    supaclaw: Supaclaw

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def workspace(self) -> Path:
        return self.home / "ws"

    @property
    def config(self) -> Path:
        return self.state / "openclaw.json"

    @property
    def record(self) -> Path:
        return self.workspace / ".supaclaw-install.json"

    @property
    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.config.read_text())
        return found

    def says(self, **changes: object) -> None:
        says: dict[str, object] = {"version": "OpenClaw 2026.9.6 (abc)", "rejects": ["memorySearch"]}
        says |= {"status": "loaded", "fills": ""} | changes
        (self.home / "openclaw.says").write_text(json.dumps(says))

    def arguments(self, command: str, *more: str) -> tuple[str, ...]:
        yes = () if command == "verify" else ("--yes",)
        return ("openclaw", command, "--workspace", str(self.workspace), "--state", str(self.state), *yes, *more)

    def act(self, command: str, *more: str) -> Done:
        return self.supaclaw(*self.arguments(command, *more))

    def killed(self, command: str, n: int, *more: str) -> int:
        """The exit code, in a process of its own."""
        environ = os.environ | {"SUPACLAW_FAIL": f"openclaw.step:{n}"}
        arguments = [sys.executable, "-m", "gateway", *self.arguments(command, *more)]
        return subprocess.run(arguments, env=environ, capture_output=True, check=False).returncode

    def snapshot(self) -> dict[str, tuple[bytes, int]]:
        """Everything, with its mode."""
        return {
            str(path.relative_to(self.home)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mode)
            for path in sorted(self.home.rglob("*"))
            if path.name not in {"openclaw.says", "filler"} and "bin" not in path.parts
        }


@pytest.fixture
def installation(
    place: Path, dsn: str, supaclaw: Supaclaw, monkeypatch: pytest.MonkeyPatch, memory_answers: None
) -> Installation:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")
    found = Installation(place / "theirs", supaclaw)
    for folder in (found.state, found.workspace, found.home / "bin"):
        folder.mkdir(parents=True)
    program = found.home / "bin" / "openclaw"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    found.config.write_text(BEFORE)
    workspace(found.workspace)
    (found.workspace / "AGENTS.md").write_text("# Me\n\nNo newline at the end")
    found.says()
    return found


@contextmanager
def mounted(at: Path, options: str) -> Iterator[None]:
    """A small file system there, which only root can mount."""
    at.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@pytest.fixture
def small_disk(place: Path) -> Iterator[None]:
    """For OpenClaw alone: 4 MiB."""
    with mounted(place / "theirs", "size=4m"):
        yield


@pytest.fixture
def memory_answers(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gateway that stores, finds and forgets one memory."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Memory(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            row = {"memory": {"id": 7}}
            self.send_response(200 if self.headers["Authorization"].startswith("Bearer claw_") else 401)
            self.end_headers()
            self.wfile.write(json.dumps({"hits": [row]} if self.path.endswith("search") else row).encode())

        do_GET = do_DELETE = do_POST  # noqa: N815 - names of http.server

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Memory) as server:
        monkeypatch.setenv("SUPACLAW_PORT", str(server.server_port))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
