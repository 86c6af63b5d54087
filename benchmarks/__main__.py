"""`python -m benchmarks`: measure on this machine, which should have nothing else to do."""

import argparse
import asyncio
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.against import alternately
from benchmarks.model import mock_model
from benchmarks.people import People
from benchmarks.report import lines, table
from benchmarks.turns import Measured, measure


async def run() -> Measured:
    people = People()
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as home:
        async with people.telegram, mock_model() as model:
            return await measure(Path(home), people, model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks.json"), help="where the figures go")
    parser.add_argument("--against", metavar="REVISION", help="measure this one, too, in turns, each three times")
    parser.add_argument("--rounds", type=int, default=3, help="how often, with --against")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a start of people's has compiled imports
    if options.against:
        found, before = alternately(options.against, options.rounds)
        print(table(lines(found), (options.against, lines(before))))
    else:
        found = asyncio.run(run())
        print(table(lines(found)))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
