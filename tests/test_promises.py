"""docs/promises.md names a proof for every promise, and every proof is a test that exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import tools
from gateway.tools import Services
from gateway.workspace.files.tree import Workspace

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").replace("│", " ").replace("**", "").split())

PROMISES = (
    "No acknowledged message is lost.",
    "An answer is shown at most once; uncertainty is shown, never hidden.",
    "kill -9 at any instant costs no data, and every open message is being worked on again within 3 s of the restart.",
    "A hijacked model performs no unapproved external act and never sees a secret value.",
    "A command cannot write outside the workspace, reach the network, the database or the gateway.",
    "Locked text comes back byte for byte.",
    "No request reaches a private address unless listed.",
    "Nothing unauthenticated, nothing beyond loopback by default.",
    "One session never blocks another.",
    "The next prompt always fits.",
    "A bad config never stops a running gateway.",
    "Idle costs no tokens.",
)
NOT_YET: set[str] = set()
"""Promises about what is not built; whoever builds it takes the line away."""
FILE_TOOLS = {"list_files", "read_file", "write_file", "edit_file", "move_file", "delete_file"}
OWN_CHATS = {"send_message", "send_file"}
"""They reach chats of the person the agent works for, and nobody else's."""
THE_WEB = {"web_fetch", "web_search"}
"""An address that nobody but the model named asks; tests/security/test_no_way_through.py tries."""
OWN_TOOLS = {"find_tools"}
"""It lists other tools of this toolbox, and acts on nothing."""
OWN_TIME = {"cron"}
OWN_MEMORY = {"memory_search", "memory_get", "remember", "forget"}
"""It says when the agent is asked something again, by the same person's words and into the same person's chats."""


def table(heading: str) -> list[list[str]]:
    """The rows below a heading, without the two lines above them."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def names_in(path: Path) -> Iterator[str]:
    """Names as pytest knows them, read without importing."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        within = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for each in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                yield f"{path.relative_to(ROOT)}::{within}{each.name}"


HEADINGS = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
ROWS = [(heading, row[0], row[-1]) for heading in HEADINGS for row in table(heading)]


def test_every_promise_stands_on_the_page_word_for_word() -> None:
    assert tuple(row[0] for row in table("Promises")) == PROMISES


def test_every_claim_is_made_by_the_readme() -> None:
    assert [claim for claim, _ in table("What the README says") if claim not in README] == []


def test_every_complaint_is_accounted_for() -> None:
    rows = table("What users of such gateways suffered from")
    assert [number for number, *_ in rows] == [str(number) for number in range(1, 26)]
    assert [row for row in rows if not re.search(r"#\d+", row[2])] == []


def test_only_what_is_not_built_has_no_proof_yet() -> None:
    ours = ("Promises", "What the README says")
    unproved = {what for heading, what, proof in ROWS if heading in ours and proof.startswith("not yet: ")}
    assert unproved == NOT_YET


@pytest.mark.parametrize(("what", "proof"), [pytest.param(what, proof, id=what[:40]) for _, what, proof in ROWS])
def test_a_proof_is_a_test_that_exists(what: str, proof: str) -> None:
    named = re.findall(r"`(tests/[^`]+)`", proof)
    files = {ROOT / name.partition("::")[0] for name in named}
    known = {test for file in files if file.exists() for test in names_in(file)}

    assert named or re.fullmatch(r"not yet: .{10,}", proof), f"{what!r} has no proof"
    assert not re.search(r"` \([^)]*\b(yet|no tool)\b[^)]*\)", proof), f"{what!r} is excused by a remark, not proved"
    assert [name for name in named if name not in known] == []


def test_the_only_tools_work_on_files_or_schedules_or_speak_to_the_user(tmp_path: Path) -> None:
    """What could act outside, run commands or make requests has to prove its own promises first."""

    services = Services(Workspace(tmp_path))

    found = {tool.name for family in tools.discover() for tool in family(services)}

    assert found == FILE_TOOLS | OWN_CHATS | OWN_TIME | OWN_MEMORY | OWN_TOOLS | THE_WEB


def test_every_attack_that_the_security_page_names_is_made() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests/\S+?/)?)(test_\w+\.py)(?:::(\w+))?`", page)
    assert len(named) > 20
    for folder, file, test in named:
        text = (ROOT / (folder or "tests/security/") / file).read_text(encoding="utf-8")
        assert f"def {test or 'test_'}" in text, f"{file}::{test}"
