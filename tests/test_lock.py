"""What uv.lock names can be installed wherever the program is said to work, without a compiler."""

import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[1]
PLATFORMS = {
    ("linux", "x86_64"): [
        *(f"manylinux_2_{minor}_x86_64" for minor in range(5, 35)),
        "manylinux2014_x86_64",
        "manylinux1_x86_64",
    ],
    ("linux", "aarch64"): [*(f"manylinux_2_{minor}_aarch64" for minor in range(17, 35)), "manylinux2014_aarch64"],
    ("darwin", "arm64"): list(mac_platforms((14, 0), "arm64")),
}
"""glibc 2.34 and macOS 14."""
VERSIONS = ("3.11.0", "3.11.9", "3.12.0", "3.13.0", "3.14.0")

LOCK = tomllib.loads((ROOT / "uv.lock").read_text())


def reached(environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The packages that are installed there, the tools of development among them."""
    [project] = packages("supaclaw")
    open_ends = [*project["dependencies"], *project["dev-dependencies"]["dev"]]
    found: dict[str, dict[str, Any]] = {}
    seen: set[tuple[str, str]] = set()
    while open_ends:
        wanted = open_ends.pop()
        if "marker" in wanted and not Marker(wanted["marker"]).evaluate(environment):
            continue
        [package] = (each for each in packages(wanted["name"]) if wanted.get("version") in (None, each["version"]))
        found[package["name"]] = package
        for extra in {"", *wanted.get("extra", ())} - {extra for name, extra in seen if name == package["name"]}:
            seen.add((package["name"], extra))
            more = package.get("optional-dependencies", {}).get(extra, ())
            open_ends += more if extra else package.get("dependencies", ())
    return found


def packages(name: str) -> list[dict[str, Any]]:
    return [package for package in LOCK["package"] if package["name"] == name]


def tags(version: str, platforms: list[str]) -> set[Tag]:
    """What an interpreter of this version takes."""
    python = tuple(map(int, version.split(".")[:2]))
    interpreter = f"cp{python[0]}{python[1]}"
    return {*cpython_tags(python, platforms=platforms), *compatible_tags(python, interpreter, platforms)}


def wheels(package: dict[str, Any]) -> Iterator[Tag]:
    names = (wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", ()))
    return chain.from_iterable(parse_wheel_filename(name)[3] for name in names)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("system", "machine"), PLATFORMS)
def test_every_package_has_a_wheel(version: str, system: str, machine: str) -> None:
    environment = {
        "python_version": version.rpartition(".")[0],
        "python_full_version": version,
        "sys_platform": system,
        "platform_system": system.capitalize(),
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
    }
    fit, found = tags(version, PLATFORMS[system, machine]), reached(environment)
    missing = {name for name, package in found.items() if fit.isdisjoint(wheels(package))}
    assert len(found) > 100
    assert missing == set()


def test_everything_comes_from_one_registry_and_opencv_draws_no_windows() -> None:
    sources = {package["source"].get("registry", "") for package in LOCK["package"]}
    hosts = {wheel["url"].split("/")[2] for package in LOCK["package"] for wheel in package.get("wheels", ())}
    assert (sources, hosts) == ({"https://pypi.org/simple", ""}, {"files.pythonhosted.org"})
    assert packages("opencv-python") == []
