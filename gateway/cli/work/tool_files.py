"""`supaclaw tool-files`: tools that files of the workspace declare, and the owner's word on them."""

from gateway.agent.skills.library import Listed, Skills
from gateway.agent.skills.showing import described, undecided
from gateway.agent.tool_files.confirmed import FORM, ToolFiles
from gateway.cli.console import echo
from gateway.cli.output import AsJson, print_rows
from gateway.cli.work.skills import COLUMNS, Despite, Name, Row, Yes, confirm_shown, print_one, with_library
from gateway.domain.diff import legible
from gateway.workspace.skills.folder import digest


def show_all(as_json: AsJson = False) -> None:
    """List the tools that files declare, and which of them are on."""
    rows = [Row.of(each) for each in with_library(lambda library: library.list_all(), FORM)]
    print_rows(rows, COLUMNS, as_json=as_json, none="No tool files; docs/tools.md says how to write one.")


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a tool file, its scan and what changed since you confirmed it."""

    async def read(library: Skills) -> tuple[Listed, str]:
        return await library.get(name), described(*await undecided(library, name), FORM)

    found, text = with_library(read, FORM)
    shown = f"{name} is {found.state.value}\n{legible(text)}"
    print_rows([Row.of(found)], COLUMNS, as_json=True) if as_json else echo(shown)


def enable(name: Name, yes: Yes = False, despite_findings: Despite = False, as_json: AsJson = False) -> None:
    """Confirm a tool file and its OpenAPI document."""

    async def read(library: Skills) -> tuple[str, str]:
        await ToolFiles(library).complete(name)
        shown = await undecided(library, name)
        return digest(shown[0]), described(*shown, FORM)

    sha256, text = with_library(read, FORM)
    confirm_shown(name, sha256, text, yes, despite_findings, as_json, FORM)


def disable(name: Name, as_json: AsJson = False) -> None:
    """Switch a tool file off; it stays."""
    with_library(lambda library: library.disable(name), FORM)
    print_one(name, as_json, FORM)
