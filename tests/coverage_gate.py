"""Fails when lines or branches fall below their floor; coverage's own gate knows only their mixture."""

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=Path)
    parser.add_argument("--lines", type=float, required=True)
    parser.add_argument("--branches", type=float, required=True)
    wanted = parser.parse_args()
    totals = json.loads(wanted.report.read_text())["totals"]
    lines = share(totals["covered_lines"], totals["num_statements"])
    branches = share(totals["covered_branches"], totals["num_branches"])
    print(
        f"coverage: lines {lines:.1f} % (at least {wanted.lines:g}), "
        f"branches {branches:.1f} % (at least {wanted.branches:g})"
    )
    if lines < wanted.lines or branches < wanted.branches:
        sys.exit("coverage is below the floor; `coverage report` names the lines")


def share(covered: int, all: int) -> float:
    return 100.0 * covered / all if all else 100.0


if __name__ == "__main__":
    main()
