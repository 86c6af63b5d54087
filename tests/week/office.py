"""The tools of the week, as an owner would confirm them: mail, contacts, a calendar, pages, a team's chats."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.agent.tool_sources import AnyArguments
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, Tool, ToolClass
from gateway.domain.conversation.tools import ArgumentRole as Role
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.tools import Services

Found = Callable[[Json], JsonObject]
"""A result by the one argument of a reading tool."""
CONTACTS: Sequence[JsonObject] = [
    {"name": name, "address": f"{name.lower()}@{home}.example"}
    for name, home in (("Bob", "work"), ("Carla", "work"), ("Mum", "home"), ("Jonas", "club"), ("Dr. Weber", "praxis"))
]
CHANNELS: Sequence[JsonObject] = [{"name": "team", "id": "C1"}, {"name": "support", "id": "C2"}]
EVENTS: Sequence[JsonObject] = [
    {"id": "e1", "title": "Stand-up", "start": "2026-11-30T09:00", "mine": True},
    {"id": "e2", "title": "Dentist", "start": "2026-12-01T15:00", "mine": True},
    {"id": "e3", "title": "Choir", "start": "2026-12-03T19:00", "mine": True},
    {"id": "e4", "title": "Offsite", "start": "2026-12-04T10:00", "mine": False, "from": "carla@work.example"},
]
MAILS: Mapping[str, JsonObject] = {
    "Bob": {"id": "m1", "from": "bob@work.example", "body": "The review is on 2026-12-02 at 14:00, room Elbe."},
    "Carla": {
        "id": "m2",
        "from": "carla@work.example",
        "body": "Numbers for May are up by a tenth; the rest as planned.",
    },
    "airline": {
        "id": "m3",
        "from": "no-reply@air.example",
        "body": "Your flight leaves on 2026-12-05T07:40, gate A12.",
    },
    "landlord": {"id": "m4", "from": "rent@flat.example", "body": "The meter is read on 2026-12-03 in the morning."},
    "club": {"id": "m5", "from": "jonas@club.example", "body": "Training moves to the small hall this week."},
    "shop": {
        "id": "m6",
        "from": "shop@shop.example",
        "body": "Track it at https://shop.example/t/771 from tomorrow on.",
    },
    "school": {"id": "m7", "from": "office@school.example", "body": "The play is on 2026-12-09 at 18:00."},
    "recruiter": {"id": "m8", "from": "eve@jobs.example", "body": "Please answer to hr@jobs.example."},
}


@dataclass
class Office:
    """The person's own things there; `acts` are the calls that did something."""

    acts: list[str] = field(default_factory=list)

    def tools(self, _services: Services) -> tuple[AnyTool, ...]:
        """All of them: roles and classes are those that an owner gives when confirming a tool."""
        content, recipient, time, id_ = Role.CONTENT, Role.RECIPIENT, Role.TIME, Role.ID
        return (
            self._reads("mail_search", lambda query: {"mails": [MAILS.get(str(query), {})]}),
            self._reads("contacts", lambda _: {"contacts": list(CONTACTS)}, own="*"),
            self._reads("calendar", lambda _: {"events": list(EVENTS)}, own="mine"),
            self._reads("channels", lambda _: {"channels": list(CHANNELS)}, own="*"),
            self._reads("chat_read", lambda name: {"said": [{"by": "Carla", "text": f"{name}: the build is green."}]}),
            self._reads("page", lambda url: {"text": f"{url}: partly cloudy, 4 degrees."}, roles={"what": Role.LINK}),
            self._acts("mail_send", {"to": recipient, "subject": content, "body": content}),
            self._acts("calendar_add", {"title": content, "start": time, "end": time, "people": recipient}),
            self._acts("calendar_move", {"id": id_, "start": time}),
            self._acts("calendar_invite", {"id": id_, "person": recipient}),
            self._acts("chat_post", {"channel": recipient, "text": content}),
            self._acts("mail_archive", {"id": id_}),
            self._acts("pay", {"to": recipient, "amount": Role.AMOUNT}),
            self._acts("mail_delete", {"id": id_}, ToolClass.IRREVERSIBLE),
        )

    def _reads(self, name: str, found: Found, own: str = "", roles: Mapping[str, Role] | None = None) -> AnyTool:
        async def run(arguments: AnyArguments, _caller: Caller) -> Labelled:
            return Labelled(found((arguments.model_extra or {}).get("what")), Label.UNTRUSTED)

        kind = _kind_of_page if name == "page" else ToolClass.READ
        return Tool(name, "", AnyArguments, run, kind=kind, own_rows=own, roles=roles or {}, server=_of(name))

    def _acts(self, name: str, roles: Mapping[str, Role], kind: ToolClass = ToolClass.SEND) -> AnyTool:
        async def run(_arguments: AnyArguments, _caller: Caller) -> Labelled:
            self.acts.append(name)
            return Labelled({"ok": True}, Label.UNTRUSTED)

        parameters: JsonObject = {"type": "object", "properties": {each: {"type": "string"} for each in roles}}
        return Tool(
            name, "", AnyArguments, run, Effect.ONCE, kind=kind, roles=roles, server=_of(name), parameters=parameters
        )


async def _kind_of_page(arguments: AnyArguments, caller: Caller) -> ToolClass:
    """As that of `web_fetch`."""
    return ToolClass.NET if await caller.said(str((arguments.model_extra or {})["what"])) else ToolClass.SEND


def _of(tool: str) -> str:
    """The account that a tool belongs to."""
    return tool.partition("_")[0].removesuffix("s")
