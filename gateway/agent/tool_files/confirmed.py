"""The tools as files that are on now: exactly the bytes that the owner confirmed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import SecretStr

from gateway.agent.skills.library import Form, Skills
from gateway.config.model import McpServer
from gateway.domain.conversation.tools import AnyTool, ToolFailed
from gateway.workspace.skills.folder import Files, digest
from gateway.workspace.tool_files.declaration import Internal, Server
from gateway.workspace.tool_files.tool_file import DOCUMENT, FOLDER, ToolFile, document_url, tool_file_of

FORM = Form("tool file", FOLDER, tool_file_of, "tool-files")
MAX_DOCUMENT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One that is on, and the hash of its bytes."""

    tool: ToolFile
    sha256: str


@dataclass
class ToolFiles:
    """Those of the owner, as they were at the last look."""

    library: Skills
    on: Sequence[Confirmed] = ()

    async def look(self) -> tuple[str, ...]:
        """Read what changed; what it answers is different then. What can't be read is off, and hides no other."""
        looks = await self.library.on()
        self.on = [Confirmed(look.skill, look.sha256) for look in looks if isinstance(look.skill, ToolFile)]
        return tuple(each.sha256 for each in self.on)

    async def check(self, confirmed: Confirmed) -> None:
        """Raise `ToolFailed` if it is not on any more: a call may be of a prompt, or a question, of before."""
        if confirmed.sha256 not in await self.look():
            raise _changed(confirmed)

    async def bytes_of(self, confirmed: Confirmed) -> Files:
        """Its files, byte for byte as they were confirmed; raises `ToolFailed` as `check` does."""
        await self.check(confirmed)
        files = await self.library.on_disk(confirmed.tool.name)
        if digest(files) != confirmed.sha256:
            raise _changed(confirmed)
        return files

    async def complete(self, name: str) -> None:
        """Fetch the OpenAPI document that it names by an address; it waits, with the rest, for the owner's word."""
        files = await self.library.on_disk(name)
        if files and (url := document_url(files)):
            data = await self.library.fetch(url, MAX_DOCUMENT)
            await self.library.stage_files({**files, DOCUMENT: data}, url)

    @property
    def servers(self) -> Mapping[str, McpServer]:
        """The MCP servers among them, as the settings would have them."""
        found = dict[str, McpServer]()
        for tool in (each.tool for each in self.on if each.tool.head.is_active):
            if isinstance(tool.config, Server):
                headers = {name: SecretStr(value) for name, value in tool.config.headers.items()}
                if credential := tool.credential:
                    headers[credential.header] = SecretStr(credential.text.format(f"${{secret:{credential.secret}}}"))
                found[tool.name] = McpServer(url=tool.config.url, headers=headers)
        return found

    def adjusted(self, tools: Sequence[AnyTool]) -> list[AnyTool]:
        """The gateway's own tools, without those that a file of type `internal` switches off, in its words."""
        files = [each.tool for each in self.on]
        said = {file.config.tool: file for file in files if isinstance(file.config, Internal)}
        kept = [tool for tool in tools if tool.name not in said or said[tool.name].head.is_active]
        return [replace(tool, description=said[tool.name].description) if tool.name in said else tool for tool in kept]


def _changed(confirmed: Confirmed) -> ToolFailed:
    message = f"The files of the tool {confirmed.tool.name} have changed; only its owner can confirm them."
    return ToolFailed("not_confirmed", message)
