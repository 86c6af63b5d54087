"""`make attack`: every attack in every jail that this kernel can build; the table for docs/security.md."""

import sys

from gateway.sandbox import landlock
from gateway.sandbox.command import Tier
from tests.security.workshop.suite import run

NAMES = {
    Tier.NAMESPACES: "namespaces, Landlock, seccomp",
    Tier.LANDLOCK: "Landlock, seccomp",
    Tier.CONTAINER: "the service of compose",
}


def main() -> int:
    bad = 0
    sys.stdout.write("| jail | Landlock | attacks that succeeded | work that failed |\n|---|---|---|---|\n")
    for tier in Tier:
        for version in (*range(landlock.abi(), 0, -1), *([-1] if tier is Tier.CONTAINER else [])):
            result = run(tier, version)
            attacks = [row for row in result.rows if not row[0].startswith("works: ")]
            work = [row for row in result.rows if row[0].startswith("works: ")]
            lost, broken = (sum(not held for _, held, _ in rows) for rows in (attacks, work))
            told = f"{lost} of {len(attacks)} | {broken} of {len(work)}"
            sys.stdout.write(
                f"| {NAMES[tier]} | {max(0, version)} | {f'{result.skipped} | –' if result.skipped else told} |\n"
            )
            for name, held, answer in result.rows:
                if not held:
                    sys.stderr.write(f"{name}: {answer}\n")
            bad += lost + broken
            sys.stdout.flush()
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
