"""`supaclaw tool-files`: tools that files of the workspace declare, and the owner's word on them."""

from gateway.agent.skills.library import Skills, described_skill, undecided_skill
from gateway.agent.tool_files.confirmed import FORM, ToolFiles
from gateway.cli.output import AsJson
from gateway.cli.questions import Yes
from gateway.cli.work.skills import Despite, Name, confirm_shown, disable_one, list_those, show_one, with_library
from gateway.workspace.skills.folder import digest


def show_all(as_json: AsJson = False) -> None:
    """List the tools that files declare, and which of them are on."""
    list_those(FORM, as_json, "No tool files; docs/tools.md says how to write one.")


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a tool file, its scan and what changed since you confirmed it."""
    show_one(name, as_json, FORM)


def enable(name: Name, yes: Yes = False, despite_findings: Despite = False, as_json: AsJson = False) -> None:
    """Confirm a tool file and its OpenAPI document."""

    async def read(library: Skills) -> tuple[str, str]:
        await ToolFiles(library).complete(name)
        shown = await undecided_skill(library, name)
        return digest(shown[0]), described_skill(*shown, FORM)

    sha256, text = with_library(read, FORM)
    confirm_shown(name, sha256, text, yes, despite_findings, as_json, FORM)


def disable(name: Name, as_json: AsJson = False) -> None:
    """Switch a tool file off; it stays."""
    disable_one(name, as_json, FORM)
