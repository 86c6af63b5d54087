"""`python -m docker.pin`: name every image by its digest, as a release does where the registries can be reached.

A tag can be moved to another image; a digest cannot. What is pinned already is renewed to what its tag is now.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

FILES = ("docker/Dockerfile", "docker-compose.yml")
IMAGE = re.compile(r"^((?:ARG BASE=|    image: ))([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?$", re.MULTILINE)
"""A base or a service of ours with its tag; the image that is built here has none."""
KINDS = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_HUB = "https://registry-1.docker.io"
SECONDS = 20


def pinned(text: str, digest: Callable[[str], str]) -> str:
    """The file with the digest that each of its images has now."""
    return IMAGE.sub(lambda found: f"{found[1]}{found[2]}@{digest(found[2])}", text)


def digest_of(image: str, hub: str = DOCKER_HUB) -> str:
    """The digest of the index of all platforms; the protocol is the OCI distribution specification's, "pull"."""
    path, _, tag = image.rpartition(":")
    host, slash, rest = path.partition("/")
    registry, name = (f"https://{host}", rest) if slash and "." in host and host != "docker.io" else (hub, path)
    name = name.removeprefix("docker.io/")
    url = f"{registry}/v2/{name if '/' in name else f'library/{name}'}/manifests/{tag}"
    answer = _digest(url, {}) or _digest(url, {"Authorization": f"Bearer {_token(url)}"})
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", answer or ""):
        raise SystemExit(f"{registry} names no digest for {image}; nothing was changed")
    return str(answer)


def _digest(url: str, credential: dict[str, str]) -> str | None:
    """None when the registry asks for a token first."""
    try:
        with urlopen(Request(url, headers={"Accept": KINDS, **credential}, method="HEAD"), timeout=SECONDS) as answer:
            return str(answer.headers.get("Docker-Content-Digest"))
    except HTTPError as error:
        if error.code == 401 and not credential:
            return None
        raise


def _token(url: str) -> str:
    """The token that a registry gives to everybody, from where its refusal says."""
    fields: dict[str, str] = {}
    try:
        urlopen(Request(url, method="HEAD"), timeout=SECONDS).close()
    except HTTPError as error:
        fields = dict(re.findall(r'(\w+)="([^"]*)"', error.headers.get("WWW-Authenticate", "")))
    with urlopen(f"{fields['realm']}?service={fields['service']}&scope={fields['scope']}", timeout=SECONDS) as answer:
        return str(json.load(answer)["token"])


def main() -> None:
    """Pin all files, or none."""
    root = Path(__file__).parents[1]
    try:
        texts = {root / name: pinned((root / name).read_text(), digest_of) for name in FILES}
    except (URLError, KeyError, TimeoutError) as error:
        raise SystemExit(f"a registry does not answer ({error}); nothing was changed") from error
    for path, text in texts.items():
        path.write_text(text)
        sys.stdout.write("".join(f"{path.name}: {image}{digest}\n" for _, image, digest in IMAGE.findall(text)))


if __name__ == "__main__":
    main()
