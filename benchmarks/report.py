"""The figures beside what was promised and what others take."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.turns import CHATS, TURNS_EACH, Measured

PEERS = ("nanobot", "Hermes", "OpenClaw", "25-line bot")


@dataclass(frozen=True, slots=True)
class Line:
    """One figure; `peers` in the order of `PEERS`, "" where nobody measured it."""

    what: str
    figure: str
    target: str
    peers: tuple[str, ...] = ("", "", "", "")


def lines(found: Measured) -> list[Line]:
    """Every figure, in the order of the budgets."""
    alone, slow, load = found.alone, found.alone_slow_model, found.load
    answered = f"{load.answered} of {CHATS * TURNS_EACH}"
    return [
        Line("ready, wall", f"{found.ready.wall_s:.2f} s", "≤ 1.1 s", ("1.35 s", "1.27 s", "12.3 s", "0.18 s")),
        Line("ready, CPU", f"{found.ready.cpu_s:.2f} s", "≤ 1.1 s", ("1.33 s", "", "", "")),
        Line("idle memory", f"{found.idle.gateway_mb:.0f} MB", "≤ 105 MB", ("123 MB", "136 MB", "1,080 MB", "34 MB")),
        Line("idle memory, litellm loaded", f"{found.idle_litellm.gateway_mb:.0f} MB", "≤ 270 MB"),
        Line("Postgres on top", f"{found.idle.postgres_mb:.0f} MB", "≤ 38 MB"),
        Line("idle CPU", f"{found.idle.cpu_percent:.2f} %", "≤ 0.2 %"),
        Line(
            "added latency p50 / p95",
            f"{alone.added_p50_ms:.0f} / {alone.added_p95_ms:.0f} ms",
            "≤ 12 / 20 ms",
            ("153 / 188 ms", "265 / 358 ms", "949 / 1949 ms", "2 / 4 ms"),
        ),
        Line(
            "the same, model takes 200 ms",
            f"{slow.added_p50_ms:.0f} / {slow.added_p95_ms:.0f} ms",
            "≤ 12 / 20 ms",
        ),
        Line("CPU per turn, alone", f"{alone.cpu_ms:.1f} ms", "≤ 10 ms", ("86 ms", "103 ms", "537 ms", "1.7 ms")),
        Line("CPU per turn, under load", f"{load.cpu_ms:.1f} ms", "≤ 6 ms", ("73 ms", "", "", "")),
        Line("load: answered", answered, "200 of 200", ("200", "196", "200", "200")),
        Line("load: all over after", f"{load.total_s:.2f} s", "≤ 1.8 s", ("14.7 s", "18.5 s", "77.6 s", "0.95 s")),
        Line("load: 95 % over after", f"{load.most_s:.2f} s", "≤ 1.8 s"),
        Line("load: a turn, p95", f"{load.turn_p95_s:.2f} s", "≤ 2.5 s"),
        Line("fixed prompt", f"{found.prompt_tokens:,} tokens", "≤ 4,400", ("7,795", "14,483", "13,204", "")),
        Line("model calls per plain turn", f"{alone.model_calls:.2f}", "1"),
    ]


def table(rows: Sequence[Line], before: tuple[str, Sequence[Line]] | None = None) -> str:
    """The lines as a Markdown table, with the figures of another version of this name beside them."""
    name, others = before or ("", ())
    named = (name,) if before else ()
    cells = [("", "SupaClaw", *named, "target", *PEERS)]
    for place, row in enumerate(rows):
        cells.append(
            (row.what, row.figure, *(other.figure for other in others[place : place + 1]), row.target, *row.peers)
        )
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    told = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in cells]
    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join([told[0], rule, *told[1:]])
