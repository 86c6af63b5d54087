"""What is installed is what uv.lock names, and nothing of it runs unasked."""

import json
import re
import sysconfig
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from docker.pin import FILES, IMAGE, digest_of, pinned
from gateway.app.checks.installation import startup_code

ROOT = Path(__file__).parents[2]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())


def test_nothing_installed_runs_by_itself() -> None:
    assert startup_code(Path(sysconfig.get_path("purelib"))) == []


@pytest.mark.parametrize("name", ["litellm_init.pth", "sitecustomize.py", "a1_coverage.pth"])
def test_what_would_run_at_every_start_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("import base64; exec(base64.b64decode(''))\n")
    (tmp_path / "folders.pth").write_text("/somewhere/else\n")
    assert startup_code(tmp_path) == [name]


def test_every_file_is_locked_by_its_hash() -> None:
    files = [
        file
        for package in LOCK["package"]
        if "registry" in package["source"]
        for file in [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
    ]
    assert files
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]) for file in files)


def test_what_installs_them_is_locked_as_well() -> None:
    uv = [line for line in (ROOT / "docker/uv.txt").read_text().splitlines() if not line.startswith("#")]
    assert re.fullmatch(r"uv==[\d.]+ \\", uv[0])
    assert uv[1:]
    assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in uv[1:])
    for place in ("Makefile", "docker/Dockerfile"):
        assert re.search(r"pip install [^\n]*--require-hashes --requirement \S*uv.txt", (ROOT / place).read_text())


def test_a_release_of_litellm_has_to_be_some_days_old() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    age = project["tool"]["uv"]["exclude-newer-package"]["litellm"]
    assert timedelta(days=int(age.removesuffix(" days"))) >= timedelta(days=7)
    assert LOCK["options"]["exclude-newer-package"]["litellm"]["span"] == f"P{age.removesuffix(' days')}D"
    [bound] = [each for each in project["project"]["dependencies"] if each.startswith("litellm")]
    assert re.search(r",<1\.\d+$", bound), "the next minor version is looked at before it is taken"
    [locked] = [package for package in LOCK["package"] if package["name"] == "litellm"]
    assert all(datetime.fromisoformat(wheel["upload-time"]) for wheel in locked["wheels"])


class Registry(BaseHTTPRequestHandler):
    """Asks for a token, then names a digest."""

    DIGEST = f"sha256:{'ab' * 32}"

    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") != "Bearer for library/debian":
            realm = f"http://127.0.0.1:{self.server.server_address[1]}/token"
            scope = "for library/debian"
            self.send_response(401)
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",service="fake",scope="{quote(scope)}"')
        else:
            found = self.path == "/v2/library/debian/manifests/bookworm-slim"
            self.send_response(200 if found else 404)
            self.send_header("Docker-Content-Digest", self.DIGEST)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        [scope] = parse_qs(urlsplit(self.path).query)["scope"]
        self.wfile.write(json.dumps({"token": scope}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_release_names_its_images_by_digest(registry: str) -> None:
    for image in ("docker.io/library/debian:bookworm-slim", "debian:bookworm-slim"):
        assert digest_of(image, registry) == Registry.DIGEST
    with pytest.raises(HTTPError):
        digest_of("docker.io/library/debian:gone", registry)


def test_pinning_finds_every_image_and_can_be_repeated() -> None:
    texts = {name: (ROOT / name).read_text() for name in FILES}
    images = [image for text in texts.values() for _, image, _ in IMAGE.findall(text)]
    assert [image.rpartition(":")[0].rpartition("/")[2] for image in images] == [
        "debian",
        "caddy",
        "pgvector",
        "scrapling",
    ]
    named = len(re.findall(r"^(?:ARG BASE=|    image: )(?!supaclaw$)", "\n".join(texts.values()), re.MULTILINE))
    assert named == len(images)
    for text in texts.values():
        once = pinned(text, lambda _: Registry.DIGEST)
        assert once != text
        assert pinned(once, lambda _: Registry.DIGEST) == once
