"""Runs pytest on several workers, then repeats alone what failed: a busy machine is no fault, a second failure is."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_FAILED = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", default="4")
    parser.add_argument("--most", type=int, default=None, help="fail if more had to be repeated (default: no limit)")
    parser.add_argument("--thorough", action="store_true", help="run the tests that are marked so, too")
    parser.add_argument("--coverage", action="store_true", help="trace the tests that run inside this process")
    wanted, others = parser.parse_known_args()
    pytest = [*(("coverage", "run", "-m") if wanted.coverage else ()), "pytest"]
    # What it doesn't know is for pytest.
    command = [sys.executable, "-m", *pytest, *(() if wanted.thorough else ("-m", "not thorough"))]

    code = subprocess.call([*command, "-q", "-n", wanted.workers, "--dist", "worksteal", "--cache-clear", *others])
    if code != TESTS_FAILED or not FAILED.exists():
        sys.exit(code)
    failed = sorted(json.loads(FAILED.read_text(encoding="utf-8")))
    told = "\n  ".join([f"repeated alone, because they failed beside others: {len(failed)}", *failed])
    print(f"\n{told}", flush=True)
    code = subprocess.call([*command, "-v", "-n", "0", "--last-failed", "--maxfail", "1", *others])
    print(told, flush=True)
    if not code and wanted.most is not None and len(failed) > wanted.most:
        sys.exit(f"at most {wanted.most} tests may need that: find what makes them depend on a quiet machine")
    sys.exit(code)


if __name__ == "__main__":
    main()
