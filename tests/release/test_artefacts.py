"""The install script and the workflows, without building anything."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
INSTALL = (ROOT / "install.sh").read_text("utf-8")
UV = (ROOT / "docker" / "uv.txt").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DARWIN = 'uname() { echo "Darwin x86_64"; }\n'


def test_the_install_script_pins_the_same_uv_for_each_platform_of_the_lock() -> None:
    platforms = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["environments"]
    [version] = re.findall(r"^uv=(uv==[\d.]+)$", INSTALL, re.MULTILINE)
    hashes = set(re.findall(r"sha256=([0-9a-f]{64})", INSTALL))

    assert len(hashes) == len(platforms)
    assert f"{version} " in UV
    assert all(f"--hash=sha256:{each}" in UV for each in hashes)


def test_it_fits_a_screen_and_is_plain_sh() -> None:
    assert len(INSTALL.splitlines()) <= 60
    assert subprocess.run(["sh", "-n", ROOT / "install.sh"], check=False).returncode == 0


def test_the_template_itself_installs_nothing(tmp_path: Path) -> None:
    told = subprocess.run(
        ["sh", ROOT / "install.sh"], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert (told.returncode, told.stderr) == (1, "this is the template; take install.sh from a release\n")
    assert list(tmp_path.iterdir()) == []


def test_on_a_machine_without_packages_it_says_so_and_installs_nothing(tmp_path: Path) -> None:
    script = INSTALL.replace("@VERSION@", "1").replace("@SHA256@", "1").replace("set -eu\n", f"set -eu\n{DARWIN}", 1)

    told = subprocess.run(
        ["sh", "-c", script], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert told.returncode == 1
    assert told.stderr.count("\n") == 1
    assert "container image" in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_rights_by_itself_and_no_caches_or_foreign_triggers(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]

    assert workflow["permissions"] == {}
    assert "pull_request_target" not in workflow[True]
    assert all(job["permissions"] and job["timeout-minutes"] for job in workflow["jobs"].values())
    assert not any("cache" in step.get("uses", "") for step in steps)


def test_the_linter_has_nothing_to_say_of_the_workflows() -> None:
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent)) or "zizmor"
    command = [zizmor, "--offline", "--no-progress", "--persona", "auditor", ROOT / ".github"]

    told = subprocess.run(command, capture_output=True, text=True, check=False)

    assert told.returncode == 0, told.stdout
