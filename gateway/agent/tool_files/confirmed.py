"""The tools as files that are on now: exactly the bytes that the owner confirmed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from gateway.agent.skills.library import Form, Skills
from gateway.domain.tools import ToolFailed
from gateway.workspace.tool_files.tool_file import DOCUMENT, FOLDER, ToolFile, document_url, tool_file_of

FORM = Form("tool file", FOLDER, tool_file_of)
MAX_DOCUMENT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One that is on, and the hash of its bytes."""

    tool: ToolFile
    sha256: str


@dataclass
class ToolFiles:
    """Those of the owner, as they were at the last look; `version` changes whenever they do."""

    library: Skills
    on: Sequence[Confirmed] = ()
    version: str = field(default="", init=False)

    async def look(self) -> None:
        """Read what changed. A file that can't be read, or isn't what was confirmed, is off and hides no other."""
        looks = await self.library.on()
        self.on = [Confirmed(look.skill, look.sha256) for look in looks if isinstance(look.skill, ToolFile)]
        self.version = sha256("".join(each.sha256 for each in self.on).encode()).hexdigest()

    @property
    def servers(self) -> Sequence[ToolFile]:
        """Those of type `mcp_server`, for the client that connects to them."""
        found = [each.tool for each in self.on if each.tool.declared.active]
        return [each for each in found if each.declared.type == "mcp_server"]

    async def check(self, confirmed: Confirmed) -> None:
        """Raise `ToolFailed` if it is not on any more: a call may be of a prompt, or a question, of before."""
        looks = {look.skill.name: look.sha256 for look in await self.library.on() if look.skill}
        if looks.get(confirmed.tool.name) != confirmed.sha256:
            message = f"The files of the tool {confirmed.tool.name} have changed; only its owner can confirm them."
            raise ToolFailed("not_confirmed", message)

    async def complete(self, name: str) -> None:
        """Fetch the OpenAPI document that it names by an address; it waits, with the rest, for the owner's word."""
        files = await self.library.on_disk(name)
        if url := document_url(files):
            data = await self.library.fetch(url, MAX_DOCUMENT)
            await self.library.stage_files({**files, DOCUMENT: data}, url)
