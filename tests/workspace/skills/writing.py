"""Skills as tests write them."""

from pathlib import Path


def skill_md(name: str = "pdf", description: str = "Reads PDF forms.", more: str = "", body: str = "Do it.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n\n{body}\n"


def put(root: Path, name: str, *, text: str = "", **files: str) -> Path:
    """A skill in a workspace."""
    folder = root / ".agents" / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text or skill_md(name))
    for file, content in files.items():
        (folder / file).write_text(content)
    return folder


def one_line(error: Exception) -> None:
    """What people are told."""
    assert "\n" not in str(error)
