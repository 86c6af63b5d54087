"""`make attack`: every attack in every jail that this kernel can build; the table for docs/security.md."""

import os
import sys

from gateway.sandbox.command import Tier
from gateway.sandbox.jail import landlock
from tests.security.workshop.suite import USER, Result, run, shells

BASH = "bash, in the jail of file readers"
NAMES = {
    Tier.NAMESPACES: "namespaces, Landlock, seccomp",
    Tier.LANDLOCK: "Landlock, seccomp",
    Tier.CONTAINER: "the service of compose",
}


def main() -> int:
    sys.stdout.write("| jail | Landlock | attacks that succeeded | work that failed |\n|---|---|---|---|\n")
    versions, user = range(landlock.abi(), 0, -1), f"uid {USER}" if os.getuid() == 0 else "this user"
    bad = 0
    if os.getuid() == 0:
        bad += _row(f"{NAMES[Tier.NAMESPACES]} (root)", landlock.abi(), run(Tier.NAMESPACES, 0, root=True))
        bad += _row(f"{BASH} (root)", landlock.abi(), shells(root=True))
    bad += _row(f"{BASH} ({user})", landlock.abi(), shells())
    for tier in Tier:
        for version in (*versions, *([-1] if tier is Tier.CONTAINER else [])):
            bad += _row(f"{NAMES[tier]} ({user})", max(0, version), run(tier, version))
    return bad > 0


def _row(name: str, version: int, result: Result) -> int:
    """Show it; how many attacks succeeded, and how much work failed."""
    attacks = [row for row in result.rows if not row[0].startswith("works: ")]
    work = [row for row in result.rows if row[0].startswith("works: ")]
    lost, broken = (sum(not held for _, held, _ in rows) for rows in (attacks, work))
    told = f"{lost} of {len(attacks)} | {broken} of {len(work)}"
    sys.stdout.write(f"| {name} | {version} | {f'{result.skipped} | –' if result.skipped else told} |\n")
    sys.stdout.flush()
    for title, held, answer in result.rows:
        if not held:
            sys.stderr.write(f"{name} {version}: {title}: {answer}\n")
    return lost + broken


if __name__ == "__main__":
    sys.exit(main())
