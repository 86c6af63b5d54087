"""Tools & skills: what the agent can use, with the findings of the scan, to confirm or switch off."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import Meaning, PinnedTool, Use
from gateway.agent.mcp.pinned_tools import tool_changes as changes_of_tool
from gateway.agent.mcp.servers import McpServers
from gateway.agent.skills.library import ListedSkill, Look, Skills, listed_facts, skill_changes, undecided_skill
from gateway.agent.tool_files.calls import missing_credential
from gateway.agent.toolbox import Toolbox
from gateway.domain.conversation.diff import legible
from gateway.domain.conversation.tools import ArgumentRole
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.net.errors import NetError
from gateway.net.mcp.server import public_url
from gateway.web.auth.access import OWNER, SignedIn, at_page, public
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused, existing
from gateway.web.http.headers import hosts_of, page_url, split_host
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import AtSite, Site
from gateway.workspace.skills.folder import MAX_FILE
from gateway.workspace.skills.parsing import BadSkill
from gateway.workspace.tool_files.tool_file import ToolFile, document_url

Kind: TypeAlias = Literal["skills", "files"]
Shown = Annotated[str, Form(max_length=64)]
"""The hash of what was shown: a confirmation covers nothing else."""

CALLBACK = "/oauth/mcp"
"""The path to which a server's sign-in sends the browser back."""

screen = Screen("/tools", "Tools & skills", "terminal", 41)


@screen.post("/tools/skills/install", status_code=204, dependencies=OWNER)
async def install(site: AtSite, source: Annotated[Text, Form(max_length=MAX_FILE)]) -> None:
    """Fetch and scan a skill; it waits on the page for the owner's confirmation."""
    try:
        await site.tools.skills.stage(source.replace("\r\n", "\n"))
    except (OwnerMustAct, TryAgainLater):
        raise
    except SupaclawError as error:
        raise Refused(400, "no_skill", str(error), param="source") from error


@screen.post("/tools/servers/{name}/connect", status_code=204, dependencies=OWNER)
async def connect(site: AtSite, name: str) -> None:
    """Connect to a server now; its row shows the result."""
    with suppress(NetError):
        await (await _servers(site, name)).connect(name)


@screen.post("/tools/servers/{name}/sign-in")
async def sign_in(request: Request, site: AtSite, name: str, caller: SignedIn) -> HTMLResponse:
    """Begin a sign-in at a server; the answer is the link to it."""
    base, host = site.access.public_url, request.headers["host"]
    own = base.rstrip("/") if base and host in hosts_of(base) else f"http://127.0.0.1:{split_host(host)[1]}"
    address = await (await _servers(site, name)).begin_sign_in(name, caller.account, f"{own}{CALLBACK}")
    return HTMLResponse(site.pages.piece("mcp_sign_in.html", address=address, at=urlsplit(address).netloc))


@screen.get(CALLBACK, dependencies=[Depends(public)])
async def return_from_sign_in(request: Request, site: AtSite) -> Response:
    """Take a browser back from a sign-in; the person finishes it, as no cookie comes from another site."""
    if not at_page(request):
        page = page_url(f"http://{request.headers['host']}", site.access.page_name)
        return RedirectResponse(f"{page}{CALLBACK}?{request.url.query}", 303)
    answer = {key: value for key, value in request.query_params.items() if key in ("state", "code", "iss")}
    return site.pages.page(request, "mcp_sign_in_end.html", title="Connect", answer=answer)


@screen.post("/tools/servers/finish")
async def finish_sign_in(request: Request, site: AtSite, caller: SignedIn) -> RedirectResponse:
    """Connect the server, if this is the browser that began it."""
    answer = {name: str(value) for name, value in (await request.form()).items()}
    name = await (await _servers(site)).finish_sign_in(caller.account, answer)
    return RedirectResponse(f"/tools#server-{name}", 303)


@screen.post("/tools/servers/{name}/sign-out", status_code=204, dependencies=OWNER)
async def sign_out(site: AtSite, name: str) -> None:
    """Revoke and remove the tokens of a server."""
    await (await _servers(site, name)).sign_out(name)


async def _servers(site: Site, *names: str) -> McpServers:
    """The owner's servers; refuses a name that is none of an enabled one."""
    servers = _servers_in(await site.tools.toolbox())
    if unknown := [name for name in names if name not in servers.servers]:
        raise Refused(404, "not_found", f"There is no MCP server {unknown[0][:80]!r} that is enabled.")
    return servers


def _servers_in(toolbox: Toolbox) -> McpServers:
    return next(source for source in toolbox.sources if isinstance(source, McpServers))


async def _tool(site: AtSite, name: str) -> PinnedTool:
    every = await site.database.read(pinned_tools.read)
    return existing(next((each for each in every if each.name == name), None), f"There is no tool {name[:80]!r}.")


OF_TOOL = [*OWNER, Depends(_tool)]


@screen.get("/tools/mcp/{name}/details", dependencies=OWNER)
async def tool_details(site: AtSite, tool: Annotated[PinnedTool, Depends(_tool)]) -> HTMLResponse:
    """The definition of a tool, its changes, and the form that confirms it."""
    text = legible(changes_of_tool(tool))
    return HTMLResponse(site.pages.piece("mcp_tool_details.html", tool=tool, text=text, uses=Use, roles=ArgumentRole))


@screen.post("/tools/mcp/{name}/confirm", status_code=204, dependencies=OF_TOOL)
async def confirm_tool(
    site: AtSite,
    name: str,
    sha256: Shown,
    use: Annotated[Use, Form()],
    argument: Annotated[Sequence[str], Form()] = (),
    role: Annotated[Sequence[ArgumentRole | Literal[""]], Form()] = (),
    own: Annotated[Text, Form(max_length=100)] = "",
) -> None:
    """Switch on exactly the definition that was shown, with this use, and a role for each argument or none."""
    meaning = Meaning({name: means for name, means in zip(argument, role, strict=False) if means}, own.strip())
    await pinned_tools.confirm(site.database, name, sha256, use, meaning)


@screen.post("/tools/mcp/{name}/off", status_code=204, dependencies=OF_TOOL)
async def disable_tool(site: AtSite, name: str) -> None:
    """Switch it off."""
    await pinned_tools.disable(site.database, name)


async def _find_skill(site: AtSite, kind: Kind, name: str) -> ListedSkill:
    every = await _library(site, kind).list_all()
    return existing(next((each for each in every if each.name == name), None), f"There is no {name[:80]!r}.")


OF_SKILL = [*OWNER, Depends(_find_skill)]


@screen.post("/tools/files/{name}/fetch", status_code=204, dependencies=OWNER)
async def fetch(site: AtSite, name: str) -> None:
    """Fetch the OpenAPI document that a tool file names; it waits for the owner's confirmation, too."""
    await _find_skill(site, "files", name)
    await site.tools.tool_files.complete(name)


@screen.get("/tools/{kind}/{name}/details", dependencies=OWNER)
async def details(site: AtSite, kind: Kind, name: str) -> HTMLResponse:
    """Everything that a confirmation covers, and its form."""
    library, found = _library(site, kind), await _find_skill(site, kind, name)
    files, before, _ = await undecided_skill(library, name)
    look = await asyncio.to_thread(Look.at, files, name, library.form)
    text = legible("\n".join(await asyncio.to_thread(skill_changes, before, files)))
    shown = {"kind": kind, "skill": found, "look": look, "text": text, "fetch": _document(kind, files)}
    return HTMLResponse(site.pages.piece("skill_details.html", **shown))


@screen.post("/tools/{kind}/{name}/confirm", status_code=204, dependencies=OF_SKILL)
async def confirm(
    site: AtSite, kind: Kind, name: str, sha256: Shown, word: Annotated[Text, Form(max_length=100)] = ""
) -> None:
    """Switch on exactly the bytes that were shown; the extra word for severe findings is its name."""
    await _library(site, kind).confirm(name, sha256, despite_findings=word.strip() == name)


@screen.post("/tools/{kind}/{name}/{act}", status_code=204, dependencies=OF_SKILL)
async def change(site: AtSite, kind: Kind, name: str, act: Literal["off", "dismiss", "remove"]) -> None:
    """Switch it off, forget the version that waits, or delete it and its files."""
    library = _library(site, kind)
    await {"off": library.disable, "dismiss": library.dismiss, "remove": library.remove}[act](name)


def _library(site: Site, kind: Kind) -> Skills:
    return site.tools.skills if kind == "skills" else site.tools.tool_files.library


def _document(kind: Kind, files: Mapping[str, bytes]) -> str | None:
    with suppress(BadSkill):
        return document_url(files) if kind == "files" else None
    return None


async def _pieces(site: Site) -> Mapping[str, str]:
    toolbox = await site.tools.toolbox()
    parts = [
        *_library_pieces(site, "skills", await site.tools.skills.list_all()),
        *await _server_pieces(site, _servers_in(toolbox)),
        *_library_pieces(site, "files", await site.tools.tool_files.library.list_all()),
    ]
    on, off = [spec.name for spec in toolbox.specs], site.tools.switched_off()
    descriptions = {spec.name: spec.description for spec in toolbox.specs}
    parts.append(("built-in", site.pages.piece("built_in_tools.html", on=on, said=descriptions, off=off)))
    return dict(parts)


def _library_pieces(site: Site, kind: Kind, every: list[ListedSkill]) -> Iterator[tuple[str, str]]:
    piece = site.pages.piece
    yield f"{kind}-heading", piece("tools_heading.html", kind=kind, empty=not every)
    for each in every:
        need = _missing(site, each)
        yield f"{kind}-{each.name}", piece("skill.html", kind=kind, skill=listed_facts(each), missing=need)


def _missing(site: Site, each: ListedSkill) -> str:
    tool, secrets = each.look.skill, site.settings.secrets
    return missing_credential(tool, secrets.finder(secrets.owner)) if isinstance(tool, ToolFile) else ""


async def _server_pieces(site: Site, servers: McpServers) -> Sequence[tuple[str, str]]:
    """The servers, each with its tools; tools of servers that are gone are not shown."""
    every = servers.config()
    parts = [("servers-heading", site.pages.piece("tools_heading.html", kind="servers", empty=not every))]
    pinned = await site.database.read(pinned_tools.read) if every else []
    for name, server in sorted(every.items()):
        tools = [tool for tool in pinned if tool.definition.server == name]
        state, problem = servers.state(name)
        at = public_url(server.url) if server.url else server.command or "no url"
        about = {"name": name, "at": at, "tools": len(tools), "signed_in": servers.is_signed_in(name)}
        parts.append((f"server-{name}", site.pages.piece("mcp_server.html", state=state, problem=problem, **about)))
        parts += [(f"tool-{tool.name}", site.pages.piece("mcp_tool.html", tool=tool)) for tool in tools]
    return parts


add_board(screen, _pieces, "tools.html")
