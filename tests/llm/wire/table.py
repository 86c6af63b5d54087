"""The table of docs/models.md: how many exchanges of each provider were tried, by what they are about.

`python -m tests.llm.wire.table` prints it; `--write` puts it into the page.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence

from benchmarks.size import ROOT
from tests.llm.wire.exchange import HABITS, Exchange, exchanges

PAGE = ROOT / "docs" / "models.md"
_TABLE = re.compile(r"^\| provider \|.*?(?=\n\n)", re.DOTALL | re.MULTILINE)


def table_of(tried: Sequence[Exchange]) -> str:
    """The exchanges as a Markdown table."""
    counts = Counter((exchange.provider, exchange.habit) for exchange in tried)
    rows = [["provider", *HABITS.values()], ["---"] * (len(HABITS) + 1)]
    for provider in sorted({exchange.provider for exchange in tried}, key=str.lower):
        rows.append([provider, *(str(counts[provider, habit] or "") for habit in HABITS)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def table_in(page: str) -> str:
    """The table as the page has it."""
    found = _TABLE.search(page)
    assert found, "the page has no table"
    return found[0]


if __name__ == "__main__":
    printed = table_of(exchanges())
    if "--write" in sys.argv:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text.replace(table_in(text), printed), encoding="utf-8")
    print(printed)
