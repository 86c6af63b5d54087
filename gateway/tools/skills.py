"""Skills: instructions for certain tasks, which the owner has confirmed and which are loaded when needed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator

from gateway.agent.skills.library import Look, Skills, SkillState, described_skill
from gateway.agent.skills.sources import check_uncounted, find, is_text
from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Change,
    Effect,
    Labelled,
    ToolArguments,
    ToolClass,
    ToolFailed,
)
from gateway.domain.errors import SupaclawError, raising, required
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.marks import data_from
from gateway.store.trust import reviews
from gateway.tools import Services, declared, tool
from gateway.workspace.skills.folder import digest, manifest, skill_of

PAGE = 20_000
FETCHED = "Nothing is installed yet. install with this source asks again, and shows the user all of it."
NO_SYNC = "skills are never synchronised: each version is installed and confirmed separately; use install"


class SkillsArguments(ToolArguments):
    """Arguments of skills."""

    action: Literal["list", "load", "read", "search", "install"]
    name: str | None = None
    path: str | None = Field(None, description="read: file of the skill")
    offset: int = Field(0, ge=0, description="next_offset of the page before")
    source: str | None = Field(None, description="install: text of a SKILL.md, or any GitHub link")
    query: str | None = Field(None, max_length=60, description="search in skills.sh: words of a name")

    @field_validator("action", mode="before")
    @classmethod
    def _no_sync(cls, action: object) -> object:
        if action == "sync":
            raise ValueError(NO_SYNC)
        return action

    def required(self, field: Literal["name", "source", "query"]) -> str:
        """A field that this action needs; raises `ToolFailed` if it is missing."""
        value: str | None = getattr(self, field)
        return required(value, ToolFailed.own("invalid_arguments", f"{self.action} needs {field}."))


@dataclass(frozen=True, slots=True)
class _SkillsTool:
    library: Skills

    async def kind(self, arguments: SkillsArguments, caller: Caller) -> ToolClass:
        """An installation always asks; a search, and the request for a link, tell a host something."""
        if arguments.action == "search":
            return ToolClass.SEND
        if arguments.action != "install":
            return ToolClass.READ
        fetches = await self._only_fetches(arguments.required("source"), caller)
        return ToolClass.SEND if fetches else ToolClass.IRREVERSIBLE

    async def _only_fetches(self, source: str, caller: Caller) -> bool:
        """Whether this call, as asked about or by its run's label, may only fetch: nobody has seen the contents.

        A call keeps its class once it has asked: an approved one comes with its person's label.
        """
        with _explained(Label.OWNER):
            if not is_text(source):
                check_uncounted(source)
            key = caller.task, [caller.ordinal]
            for review in await self.library.database.read(lambda conn: reviews.of_calls(conn, *key)):
                return review.act is ToolClass.SEND
            if caller.label <= Label.OWNER or is_text(source) or await caller.said(source):
                return False
            return await self.library.staged(source) is None

    async def lasting(self, arguments: SkillsArguments, caller: Caller) -> Change | None:
        """The whole skill that an installation would switch on, or the link or words that would be sent before."""
        if arguments.action == "search":
            words = arguments.required("query")
            return Change(f"Search skills.sh for a skill; its host learns these words:\n{words}", words)
        if arguments.action != "install":
            return None
        source = arguments.required("source")
        if await self._only_fetches(source, caller):
            return Change(f"Fetch this link, to show you the skill; its host learns the link:\n{source}", source)
        with _explained(Label.UNTRUSTED):  # the error may quote the fetched skill
            pin, files = await self.library.stage(source)
            before = await self.library.on_disk(pin.name)
        look = await asyncio.to_thread(Look.at, files)
        if look.severe:
            worst = f"{look.findings[0]}"[:300]
            message = (
                f"The scan has severe findings ({worst}). Only the owner can install {pin.name}, on the page under "
                f"Skills or with `supaclaw skills install`; tell them what was found."
            )
            raise ToolFailed("severe_findings", message, Label.UNTRUSTED)
        shown = await asyncio.to_thread(described_skill, files, before, pin.source)
        return Change(shown, f"{pin.sha256} {digest(before)}")

    @tool(
        "Skills: {action}", "Skills: {action}", kind, lasting, effect=Effect.IDEMPOTENT, timeout=90, max_result=3 * PAGE
    )
    async def skills(self, arguments: SkillsArguments, caller: Caller) -> Labelled:
        """Instructions for certain tasks.

        load gives those of one skill, read one of its files; search finds links. install asks the user, who sees all.
        """
        with _explained(Label.UNTRUSTED if arguments.action in ("search", "install") else Label.OWNER):
            match arguments.action:
                case "list":
                    return await self._list()
                case "load":
                    return await self._load(arguments.required("name"))
                case "read":
                    return await self._read(arguments)
                case "search":
                    found = await find(arguments.required("query"), self.library.fetch)
                    return Labelled({"note": data_from("skills.sh"), "found": found}, Label.UNTRUSTED)
                case "install":
                    return await self._install(arguments.required("source"), caller)

    async def _list(self) -> Labelled:
        """Unconfirmed skills are only named, and untrusted even so: other people may have chosen the name."""
        every = await self.library.list_all()
        on: list[JsonObject] = [
            {"name": each.name, "version": skill.version, "description": skill.description, "about": dict(skill.about)}
            for each in every
            if each.state is SkillState.ON and (skill := each.look.skill)
        ]
        others: JsonObject = {each.name[:80]: each.state.value for each in every if each.state is not SkillState.ON}
        return Labelled({"on": on, "not_on": others}, Label.UNTRUSTED if others else Label.OWNER)

    async def _load(self, name: str) -> Labelled:
        files = await self.library.confirmed(name)
        skill = skill_of(files)
        others = [path for path in sorted(files) if path != manifest(files)]
        more: JsonObject = {"next_offset": PAGE} if len(skill.body) > PAGE else {}
        return Labelled.own(
            {"name": name, "version": skill.version, "instructions": skill.body[:PAGE], "files": others, **more}
        )

    async def _read(self, arguments: SkillsArguments) -> Labelled:
        files, at = await self.library.confirmed(arguments.required("name")), arguments.offset
        path = arguments.path or manifest(files)
        if path not in files:
            raise ToolFailed.own("not_found", f"{path[:80]!r} isn't a file of the skill; load lists its files.")
        with raising(ToolFailed.own("binary", f"{path} is not text."), UnicodeDecodeError):
            text = files[path].decode() if arguments.path else skill_of(files).body
        more: JsonObject = {"next_offset": at + PAGE} if len(text) > at + PAGE else {}
        return Labelled.own({"content": text[at : at + PAGE], **more})

    async def _install(self, source: str, caller: Caller) -> Labelled:
        """Install only after the owner approved exactly these bytes; otherwise only fetch."""
        fetches = await self._only_fetches(source, caller)
        pin, _ = await self.library.stage(source)
        if fetches:
            return Labelled({"fetched": pin.name, "message": FETCHED}, Label.UNTRUSTED)
        await self.library.confirm(pin.name, pin.sha256)
        return Labelled.own({"installed": pin.name, "sha256": pin.sha256})


@contextmanager
def _explained(label: Label) -> Iterator[None]:
    try:
        yield
    except SupaclawError as error:
        raise ToolFailed("refused", str(error), label) from error


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool for the owner's skills; nobody else has any."""
    return () if services.skills is None else declared(_SkillsTool(services.skills))
