"""The enabled tool files, with exactly the bytes that the owner confirmed."""

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
class ConfirmedTool:
    """An enabled tool file, and the SHA-256 of its folder."""

    tool: ToolFile
    sha256: str


@dataclass
class ToolFiles:
    """The owner's enabled tool files, as of the last `look`."""

    library: Skills
    on: Sequence[ConfirmedTool] = ()

    async def look(self) -> tuple[str, ...]:
        """Read the files; returns their hashes. An unreadable file is off, without an effect on others."""
        looks = await self.library.on()
        self.on = [ConfirmedTool(look.skill, look.sha256) for look in looks if isinstance(look.skill, ToolFile)]
        return tuple(each.sha256 for each in self.on)

    async def check(self, confirmed: ConfirmedTool) -> None:
        """Raise `ToolFailed` if the tool is no longer on: a call may come from an older prompt or approval."""
        if confirmed.sha256 not in await self.look():
            raise _changed(confirmed)

    async def bytes_of(self, confirmed: ConfirmedTool) -> Files:
        """The files of a tool, exactly as confirmed; raises `ToolFailed` as `check` does."""
        await self.check(confirmed)
        files = await self.library.on_disk(confirmed.tool.name)
        if digest(files) != confirmed.sha256:
            raise _changed(confirmed)
        return files

    async def missing_document(self, name: str) -> str | None:
        """The address of the OpenAPI document that a tool file links to and has not got."""
        files = await self.library.on_disk(name)
        return document_url(files) if files else None

    async def complete(self, name: str) -> None:
        """Fetch the missing OpenAPI document, and stage it with the tool file for the owner's confirmation."""
        if url := await self.missing_document(name):
            data = await self.library.fetch(url, MAX_DOCUMENT)
            await self.library.stage_files({**await self.library.on_disk(name), DOCUMENT: data}, url)

    @property
    def servers(self) -> Mapping[str, McpServer]:
        """The MCP servers among them, as in the configuration."""
        found = dict[str, McpServer]()
        for tool in (each.tool for each in self.on if each.tool.head.is_active):
            if isinstance(tool.config, Server):
                headers = {name: SecretStr(value) for name, value in tool.config.headers.items()}
                if credential := tool.credential:
                    headers[credential.header] = SecretStr(credential.text.format(f"${{secret:{credential.secret}}}"))
                found[tool.name] = McpServer(url=tool.config.url, headers=headers)
        return found

    def adjusted(self, tools: Sequence[AnyTool]) -> list[AnyTool]:
        """The built-in tools, with the descriptions and without the tools that files of type `internal` change."""
        files = [each.tool for each in self.on]
        changed = {file.config.tool: file for file in files if isinstance(file.config, Internal)}
        left = [tool for tool in tools if tool.name not in changed or changed[tool.name].head.is_active]
        return [
            replace(tool, description=changed[tool.name].description) if tool.name in changed else tool for tool in left
        ]


def _changed(confirmed: ConfirmedTool) -> ToolFailed:
    message = f"The files of the tool {confirmed.tool.name} have changed; only its owner can confirm them."
    return ToolFailed.own("not_confirmed", message)
