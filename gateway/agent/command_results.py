"""What a model is told of a command that is over."""

from gateway.agent.commands import Permit
from gateway.domain.json import Json
from gateway.sandbox.command import Ending, Report

NAMED = 30
"""Files of each kind that an answer names."""


def ending(report: Report, seconds: int, flood_bytes: int) -> dict[str, Json]:
    """Its exit code, or why it has none."""
    words = {
        Ending.TIMEOUT: f"It took longer than {seconds} s and was ended. Give it more seconds.",
        Ending.MEMORY: "It took more memory than it may and was ended.",
        Ending.PROCESSES: "It started more processes than it may and was ended.",
        Ending.DISK: "It filled the disk and was ended; delete what it left.",
        Ending.OUTPUT: f"It wrote more than {flood_bytes // 1024**2} MB and was ended; send its output to a file.",
    }
    if report.ending is Ending.EXITED:
        return {"exit_code": report.code}
    return {"exit_code": None, "ended": words.get(report.ending, report.problem or "It was ended.")}


def changed_files(permit: Permit) -> dict[str, Json]:
    """What it did in the workspace."""
    if permit.changes is None:
        return {"files": "too many to tell what changed"}
    kinds = {"new": permit.changes.new, "changed": permit.changes.changed, "deleted": permit.changes.deleted}
    found: dict[str, Json] = {
        kind: [*paths[:NAMED], *([f"and {len(paths) - NAMED:,} more"] if len(paths) > NAMED else [])]
        for kind, paths in kinds.items()
        if paths
    }
    return {"files": found} if found else {}
