"""Families of schedules: who has acted before, and who meets then, of whom a schedule may leave out some."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Actors by name; `words` are what the person says to begin with, or the task of a tree."""

    name: str
    before: tuple[str, ...]
    meet: tuple[str, ...]
    words: str = "hello"
    day_usd: float | None = None
    """The rest of the day's budget; each model call costs and reserves 0.001."""
    tree_usd: float | None = None


FAMILIES = (
    Family("messages", (), ("accept", "work", "work2", "recover", "accept2", "send")),
    Family("edits", (), ("accept", "again", "work", "accept2", "accept3", "edit", "work2")),
    Family("commands", ("accept",), ("work", "new", "stop", "accept2", "work2", "recover", "send")),
    Family("delivery", ("accept", "work"), ("send", "send2", "accept3", "work2")),
    Family("tree", ("tree",), ("node", "cancel"), "root left right"),
    Family("trees", ("tree",), ("node", "node2", "cancel"), "root left right"),
    Family("recovery", ("tree",), ("node", "node2", "recover", "beat"), "root left right"),
    Family(
        "answers",
        ("accept", "work"),
        ("approve", "approve2", "deny", "node", "node2", "expire", "stop", "accept3", "work2"),
        "pay now",
    ),
    Family("approvals", ("accept",), ("work", "approve", "expire", "new", "node", "node2", "recover"), "pay now"),
    Family("reviews", ("tree",), ("node", "node2", "approve", "deny", "expire", "cancel"), "root left ask"),
    Family("payments", ("tree",), ("node", "node2", "approve", "approve2", "cancel", "recover"), "root ask pay"),
    Family("doubts", ("tree",), ("node", "node2", "recover", "approve", "deny", "expire"), "root act right"),
    Family("budget", ("accept", "tree"), ("work", "node", "node2", "more", "recover"), "root left right", 0.0025),
    Family("tree budget", ("tree",), ("node", "node2", "approve", "deny", "cancel"), "root left right", None, 0.002),
    Family("deletion", ("accept",), ("work", "delete", "accept2", "new", "work2", "recover")),
    Family("asked", ("tree", "node"), ("cancel", "node2", "recover", "approve", "deny", "expire"), "root left ask"),
    Family(
        "approved", ("accept", "work", "approve"), ("node", "node2", "recover", "new", "accept3", "work2"), "pay now"
    ),
    Family("files", ("share",), ("change", "change2", "type", "remove", "sweep")),
)
