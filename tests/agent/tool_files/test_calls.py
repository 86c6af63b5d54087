"""Tools that files declare, called as a model calls them: a real database, real sockets, a real policy."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.policy import Act, Policy
from gateway.agent.skills.library import Skills
from gateway.agent.skills.sources import guarded
from gateway.agent.tool_files.calls import AccessTokens, DeclaredTools
from gateway.agent.tool_files.confirmed import FORM, ToolFiles
from gateway.agent.tool_sources import spec_of
from gateway.agent.toolbox import ApprovedCall, Toolbox, ToolOutcome
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import ArgumentRole, Caller, Effect, ToolClass
from gateway.domain.ids import PrincipalId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label, Role
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.logs import SecretMask
from gateway.net.addresses import Rules
from gateway.secrets.facts import Binding
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.store.trust import audit
from gateway.workspace.files.tree import Workspace
from gateway.workspace.skills.parsing import BadSkill
from tests.fakes.api import FakeApi, api
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import answering, toolbox_of
from tests.net.servers import page, serving
from tests.tools.test_cron import Clock
from tests.workspace.tool_files.test_tool_file import BEARER, KEY, PETS
from tests.workspace.tool_files.writing import put, tool_md

VALUE = "hush-hush-hush"
OAUTH = (
    "credential_secret_name: WEATHER_KEY\ncredential_type: oauth_refresh_token\ncredential_description: Ask the Met.\n"
)


@dataclass
class Desk:
    api: FakeApi
    root: Path
    owner: PrincipalId
    files: ToolFiles
    secrets: LiveSecrets
    mask: SecretMask
    source: DeclaredTools
    asked: list[Act] = field(default_factory=list)
    message: str = ""

    @property
    def config(self) -> str:
        return f"""\
base_url: {self.api.url}
endpoints:
  - name: forecast
    path: /cities/{{city}}
    parameters: [{{name: city, required: true}}, {{name: days}}, {{name: X-Trace, in: header}}]
  - {{name: report, method: POST, path: /reports, parameters: [{{name: text, required: true}}]}}
  - {{name: forget, method: DELETE, path: /reports}}
  - {{name: now, path: /now}}
"""

    def toolbox(self, own: Label = Label.OWNER) -> Toolbox:
        return toolbox_of(
            (),
            self.spill,
            Policy(own, ask=self.ask, pass_unasked=answering(self.message)),
            clean=lambda text: self.mask.leaks.clean(text)[0],
            sources=[self.source],
        )

    async def spill(self, name: str, _text: str, _label: Label) -> str:
        return name

    async def ask(self, act: Act, _caller: Caller) -> JsonObject:
        self.asked.append(act)
        return {"waiting_for_approval": "A1"}

    async def confirm(self, text: str = "", slug: str = "weather", **files: str) -> None:
        put(self.root, slug, text or tool_md(slug, self.config), **files)
        await self.files.library.confirm(slug, (await self.files.library.get(slug)).look.sha256)
        await self.files.look()

    async def store(self, place: str = "header:Authorization", host: str = "", tool: str = "weather") -> None:
        binding = Binding.of([host or self.api.url], [tool], place)
        await self.secrets.vault.put(self.owner, "WEATHER_KEY", VALUE, shared=True, binding=binding)
        await self.secrets.look()

    async def run(
        self, name: str, label: Label = Label.OWNER, approval: ApprovedCall | None = None, **given: object
    ) -> ToolOutcome:
        call = ToolCall("1", f"weather_{name}", json.dumps(given))
        return await self.toolbox().run(call, replace(CALLER, label=label), approval=approval)

    async def call(self, name: str, **given: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads((await self.run(name, **given)).text)
        return answer

    async def events(self) -> list[audit.AuditRow]:
        async with self.secrets.vault.database.connection() as conn:
            assert (await audit.verify(conn)).broken == ""
            return await audit.newest(conn, 50)


@pytest.fixture
async def desk(database: Database, tmp_path: Path) -> AsyncIterator[Desk]:
    async with database.transaction() as tx:
        owner = await principals.add(tx, Role.OWNER, "Ada", ["fake:1"])
    async with api() as server:
        clock, mask, environ = Clock(datetime.now(UTC)), SecretMask(), dict[str, str]()
        secrets = LiveSecrets(Vault(database, tmp_path / "data", environ), owner, environ, mask.stored)
        rules = lambda: Rules.of([f"127.0.0.1:{server.server.port}"])  # noqa: E731
        root = tmp_path / "workspace"
        files = ToolFiles(Skills(database, Workspace(root), clock, guarded(rules), FORM))
        source = DeclaredTools(owner, True, files, AccessTokens(secrets, rules, clock))
        yield Desk(server, root, owner, files, secrets, mask, source)


async def test_nothing_is_offered_before_its_bytes_are_confirmed_nor_after_they_change(desk: Desk) -> None:
    folder = put(desk.root, text=tool_md(config=desk.config))
    await desk.files.look()
    assert desk.source.offers == []
    await desk.confirm()
    names = [offer.tool.name for offer in desk.source.offers]
    assert names == ["weather_forecast", "weather_report", "weather_forget", "weather_now"]
    (folder / "note.md").write_text("more")
    answer = await desk.call("now")
    assert answer["error"] == "not_confirmed"
    assert desk.api.calls == []
    await desk.files.look()
    assert desk.source.offers == []
    (folder / "note.md").unlink()
    await desk.files.look()
    assert len(desk.source.offers) == 4


async def test_a_bad_file_takes_down_no_other_and_what_was_confirmed_is_kept(desk: Desk) -> None:
    await desk.confirm()
    put(desk.root, "broken", "no head")
    (desk.root / ".agents/tools/loose.md").write_text("x")
    (put(desk.root, "linked") / "TOOL.md").unlink()
    (desk.root / ".agents/tools/linked/TOOL.md").symlink_to("/etc/passwd")
    (desk.root / ".agents/tools/weather/TOOL.md").write_text("---\n")
    await desk.files.look()
    assert desk.source.offers == []
    states = {each.name: each.state.value for each in await desk.files.library.list_all()}
    assert states == {"broken": "broken", "linked": "broken", "weather": "broken"}
    kept = await desk.files.library.kept("weather", staged=False)
    (desk.root / ".agents/tools/weather/TOOL.md").write_bytes(kept["TOOL.md"])
    await desk.files.look()
    assert len(desk.source.offers) == 4


async def test_a_member_has_none(desk: Desk) -> None:
    await desk.confirm()
    theirs = DeclaredTools(desk.owner, False, desk.files, desk.source.tokens)
    await theirs.refresh()
    assert theirs.offers == []


async def test_a_call_is_sent_where_the_file_says_and_its_answer_is_untrusted(desk: Desk) -> None:
    await desk.confirm()
    outcome = await desk.run("forecast", city="New York/../x", days=3)
    assert json.loads(outcome.text)["error"] == "invalid_arguments"
    outcome = await desk.run("forecast", city="New York/a&b?c#d", days="1 2")
    assert outcome.label is Label.UNTRUSTED
    answer = json.loads(outcome.text)
    assert answer["status"] == 200
    assert answer["body"]["path"] == "/cities/New%20York%2Fa%26b%3Fc%23d?days=1+2"
    assert "127.0.0.1, not from the user" in answer["note"]
    answer = await desk.call("report", body={"text": "Rain"})
    assert json.loads(answer["body"]["body"]) == {"text": "Rain"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "city is missing"),
        ({"city": None}, "city is missing"),
        ({"city": "x", "key": "y"}, "'key' isn't one"),
        ({"city": ".."}, "part of an address"),
        ({"city": "a\\..\\b"}, "part of an address"),
        ({"city": ""}, "part of an address"),
        ({"city": "x", "X-Trace": "a\r\nHost: evil"}, "plain ASCII"),
        ({"city": "x", "X-Trace": "${secret:WEATHER_KEY}"}, "no secret"),
    ],
)
async def test_arguments_that_do_not_fit_are_told(desk: Desk, given: dict[str, object], words: str) -> None:
    await desk.confirm(tool_md(config=desk.config, more=BEARER))
    await desk.store()
    answer = await desk.call("forecast", **given)
    assert (answer["error"], words in answer["message"]) == ("invalid_arguments", True)
    assert desk.api.calls == []


async def test_the_credential_is_sent_in_its_header_alone_and_its_use_is_audited(desk: Desk) -> None:
    await desk.confirm(tool_md(config=desk.config, more=BEARER))
    await desk.store()
    outcome = await desk.run("now")
    assert desk.api.calls[0].headers["authorization"] == f"Bearer {VALUE}"
    assert VALUE not in outcome.text
    assert "Bearer ${secret:WEATHER_KEY}" in outcome.text
    [used] = [row for row in await desk.events() if row.event == "secret used"]
    [stored] = desk.secrets.stored
    assert (used.subject, used.principal_id) == (f"secret {stored.row.id}", desk.owner)
    assert VALUE.encode() not in used.detail


@pytest.mark.parametrize("where", ["city", "days", "text"])
async def test_a_reference_in_an_argument_is_refused(desk: Desk, where: str) -> None:
    await desk.confirm(tool_md(config=desk.config, more=BEARER))
    await desk.store()
    given: dict[str, object] = {"city": "x", where: "${secret:WEATHER_KEY}"}
    name, given = ("report", {"body": given}) if where == "text" else ("forecast", given)
    answer = await desk.call(name, **given)
    assert answer["error"] == "no_credential"
    assert desk.api.calls == []


async def test_without_its_credential_a_tool_says_what_its_owner_does(desk: Desk) -> None:
    more = f"{KEY}credential_description: Free at example.org.\n"
    await desk.confirm(tool_md(config=desk.config, more=more))
    answer = await desk.call("now")
    assert answer["error"] == "no_credential"
    assert (
        f"supaclaw secrets set WEATHER_KEY --host {desk.api.url} --tool weather --header X-API-Key" in answer["message"]
    )
    assert "Free at example.org." in answer["message"]
    answer = json.loads((await desk.run("forget")).text)
    assert answer["error"] == "no_credential"
    assert desk.asked == []


@pytest.mark.parametrize(
    ("place", "host", "tool"),
    [
        ("header:Authorization", "https://other.example", "weather"),
        ("header:Authorization", "", "other"),
        ("header:X-Other", "", "weather"),
        ("field:refresh_token", "", "weather"),
        ("", "", "weather"),
    ],
)
async def test_a_credential_goes_only_where_it_is_bound_to(desk: Desk, place: str, host: str, tool: str) -> None:
    await desk.confirm(tool_md(config=desk.config, more=BEARER))
    await desk.store(place, host, tool)
    answer = await desk.call("now")
    assert answer["error"] == "no_credential"
    assert desk.api.calls == []


async def test_no_redirect_leads_to_another_origin(desk: Desk) -> None:
    async with api() as other:
        await desk.confirm(tool_md(config=desk.config, more=BEARER))
        await desk.store()
        desk.api.status, desk.api.headers = "302 Found", (f"Location: {other.url}/now",)
        assert (await desk.call("now"))["error"] == "redirected"
        desk.api.headers = ("Location: /elsewhere",)
        assert (await desk.call("report", body={"text": "x"}))["error"] == "redirected"
        assert (await desk.call("now"))["error"] == "too_many_redirects"
        assert other.server.asked == []


async def test_a_private_address_is_not_reached_unless_it_is_listed(desk: Desk) -> None:
    async with api() as inside:
        await desk.confirm(tool_md(config=f"base_url: {inside.url}\nendpoints: [{{name: now, path: /now}}]\n"))
        answer = await desk.call("now")
        assert answer["error"] == "not_allowed"
        assert "net.private_allow" in answer["message"]
        assert inside.server.asked == []


async def test_in_a_conversation_with_others_words_arguments_ask(desk: Desk) -> None:
    await desk.confirm(tool_md(config=desk.config, more=BEARER))
    await desk.store()
    for name, given in {"forecast": {"city": "x"}, "report": {"body": {"text": "x"}}, "forget": {}}.items():
        await desk.run(name, Label.UNTRUSTED, **given)
    assert [act.kind for act in desk.asked] == [ToolClass.SEND, ToolClass.SEND, ToolClass.IRREVERSIBLE]
    assert desk.api.calls == []
    await desk.run("now", Label.UNTRUSTED)
    desk.message = "How is it in Berlin?"
    await desk.run("forecast", Label.UNTRUSTED, city="Berlin")
    assert [call.path for call in desk.api.calls] == ["/now", "/cities/Berlin"]
    shown = desk.asked[1].change.preview
    assert shown.startswith(f"POST {desk.api.url}/reports\n")
    assert "credential WEATHER_KEY in the header Authorization" in shown
    assert VALUE not in shown


async def test_the_owner_may_say_that_an_operation_only_reads(desk: Desk) -> None:
    await desk.confirm(tool_md(config=f"{desk.config}classes: {{forecast: read, report: read}}\n"))
    await desk.run("forecast", Label.UNTRUSTED, city="x")
    await desk.run("report", Label.UNTRUSTED, body={"text": "x"})
    assert desk.asked == []
    assert len(desk.api.calls) == 2


async def test_the_owner_says_what_arguments_mean_and_whose_entries_are(desk: Desk) -> None:
    declared = "roles: {report: {body.text: content}}\nown: {now: made_by_me}\n"
    await desk.confirm(tool_md(config=f"{desk.config}{declared}"))
    tools = {offer.tool.name: offer.tool for offer in desk.source.offers}
    assert tools["weather_report"].roles == {"body.text": ArgumentRole.CONTENT}
    assert tools["weather_now"].own_rows == "made_by_me"
    assert tools["weather_now"].server == tools["weather_report"].server
    before = tools["weather_report"].server
    await desk.confirm(tool_md(config=desk.config))
    assert {offer.tool.name: offer.tool.roles for offer in desk.source.offers}["weather_report"] == {}
    assert desk.source.offers[0].tool.server != before


async def test_a_yes_is_to_the_version_that_was_shown(desk: Desk) -> None:
    await desk.confirm()
    await desk.run("forget")
    approval = ApprovedCall(ToolClass.IRREVERSIBLE, desk.asked[0].change.base)
    await desk.confirm(tool_md(config=desk.config, body="Changed."))
    assert json.loads((await desk.run("forget", approval=approval)).text)["error"] == "changed"
    assert desk.api.calls == []
    await desk.run("forget")
    approval = ApprovedCall(ToolClass.IRREVERSIBLE, desk.asked[1].change.base)
    assert json.loads((await desk.run("forget", approval=approval)).text)["status"] == 200


async def test_an_error_of_the_api_is_told_with_its_words(desk: Desk) -> None:
    await desk.confirm()
    desk.api.status, desk.api.answer = "404 Not Found", "no such city"
    outcome = await desk.run("now")
    answer = json.loads(outcome.text)
    assert (answer["error"], answer["status"]) == ("http_404", 404)
    assert answer["body"]["answer"] == "no such city"
    assert outcome.label is Label.UNTRUSTED


async def test_a_long_answer_is_kept_as_a_file(desk: Desk) -> None:
    await desk.confirm()
    desk.api.answer = "x" * 50_000
    answer = await desk.call("now")
    assert answer["truncated"] is True
    assert len(answer["head"]) <= 6_000


async def test_an_openapi_document_is_fetched_once_and_pinned_with_the_file(desk: Desk) -> None:
    document: Mapping[str, Any] = {**PETS, "servers": [{"url": "/v2"}]}
    desk.api.answer = None
    text = tool_md("pets", f"openapi: {desk.api.url}/openapi.json\n")
    put(desk.root, "pets", text)
    assert (await desk.files.library.get("pets")).state.value == "broken"
    with pytest.raises(BadSkill, match="no OpenAPI document"):
        await desk.files.complete("pets")
    async with serving(page(json.dumps(document).encode(), "application/json")) as server:
        url = server.url
        desk.files.library.fetch = guarded(lambda: Rules.of([url.removeprefix("http://")]))
        put(desk.root, "pets", tool_md("pets", f"openapi: {url}/openapi.json\n"))
        await desk.files.complete("pets")
    found = await desk.files.library.get("pets")
    assert found.staged is not None
    assert not (desk.root / ".agents/tools/pets/openapi.json").exists()
    await desk.files.library.confirm("pets", found.staged.sha256)
    await desk.files.look()
    assert sorted(offer.tool.name for offer in desk.source.offers)[0] == "pets_addPet"
    assert json.loads((desk.root / ".agents/tools/pets/openapi.json").read_text()) == document


async def test_the_model_is_shown_the_schema_and_where_the_documentation_is(desk: Desk) -> None:
    await desk.confirm()
    tools = {offer.tool.name: offer.tool for offer in desk.source.offers}
    shown = spec_of(tools["weather_forecast"], Label.OWNER)
    assert shown.parameters["required"] == ["city"]
    assert ".agents/tools/weather/TOOL.md" in shown.description
    assert all(tool.private for tool in tools.values())
    assert tools["weather_forecast"].effect is Effect.SAFE
    assert tools["weather_report"].effect is Effect.ONCE


async def granted(desk: Desk) -> None:
    config = f"{desk.config}oauth: {{token_url: {desk.api.url}/token, client_id: supaclaw}}\n"
    await desk.confirm(tool_md(config=config, more=OAUTH))
    desk.api.protected = True
    desk.api.refresh_token = VALUE
    await desk.store("field:refresh_token")


async def test_a_refresh_token_is_exchanged_once_and_the_new_one_is_stored(desk: Desk) -> None:
    await granted(desk)
    answers = await asyncio.gather(*(desk.call("now") for _ in range(5)))
    assert [answer["status"] for answer in answers] == [200] * 5
    assert desk.api.exchanged == 1
    assert {call.headers["authorization"] for call in desk.api.calls} == {"Bearer access-token-1"}
    assert "access-token-1" not in json.dumps(answers)
    [stored] = desk.secrets.stored
    assert (stored.value, stored.row.facts.version) == ("refresh-token-1", 2)
    assert stored.row.facts.binding.place == "field:refresh_token"
    assert [row.event for row in await desk.events()].count("secret used") == 1


async def test_an_access_token_is_renewed_before_it_ends_and_when_it_is_refused(desk: Desk) -> None:
    await granted(desk)
    await desk.call("now")
    clock = desk.source.tokens.clock
    assert isinstance(clock, Clock)
    clock.at += timedelta(seconds=3_545)
    await desk.call("now")
    assert desk.api.exchanged == 2
    desk.api.accepted = set()
    assert (await desk.call("now"))["status"] == 200
    assert desk.api.exchanged == 3
    assert desk.secrets.stored[0].value == "refresh-token-3"
    desk.api.status = "401 Unauthorized"
    assert (await desk.call("now"))["error"] == "http_401"


async def test_a_refused_refresh_token_is_told_without_the_servers_words(desk: Desk) -> None:
    await granted(desk)
    desk.api.refresh_token = "another"
    outcome = await desk.run("now")
    answer = json.loads(outcome.text)
    assert answer["error"] == "credential_refused"
    assert "invalid_grant" in answer["message"]
    assert "Ignore" not in outcome.text
    assert desk.api.calls == []


async def test_a_new_refresh_token_outlives_a_database_that_is_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await granted(desk)
    put_before = desk.secrets.renewed

    async def fails(*_: object) -> None:
        raise OSError("away")

    monkeypatch.setattr(desk.secrets, "renewed", fails)
    assert "error" in await desk.call("now")
    monkeypatch.setattr(desk.secrets, "renewed", put_before)
    assert (await desk.call("now"))["status"] == 200
    assert desk.secrets.stored[0].value == "refresh-token-2"


async def test_a_variable_does_not_hide_the_new_refresh_token(desk: Desk) -> None:
    await granted(desk)
    desk.api.refresh_token = "from-the-variable"
    assert isinstance(desk.secrets.environ, dict)
    desk.secrets.environ["WEATHER_KEY"] = "from-the-variable"
    clock = desk.source.tokens.clock
    assert isinstance(clock, Clock)
    for _ in range(2):
        assert (await desk.call("now"))["status"] == 200
        clock.at += timedelta(hours=2)
    assert desk.api.exchanged == 2


async def test_a_file_switches_off_a_tool_of_ours_or_says_it_better(desk: Desk) -> None:
    await desk.confirm()
    own = [offer.tool for offer in desk.source.offers]
    await desk.confirm(tool_md("quiet", "tool: weather_now\n", type="internal", more="is_active: false\n"), "quiet")
    await desk.confirm(tool_md("better", "tool: weather_report\n", type="internal"), "better")
    adjusted = {tool.name: tool.description for tool in desk.files.adjusted(own)}
    assert "weather_now" not in adjusted
    assert adjusted["weather_report"] == "Knows the weather."


async def test_an_mcp_server_is_handed_on_with_its_reference(desk: Desk) -> None:
    await desk.confirm(
        tool_md("docs", "url: https://mcp.example/mcp\nheaders: {X-A: b}\n", type="mcp_server", more=BEARER), "docs"
    )
    [(name, server)] = desk.files.servers.items()
    assert (name, server.url) == ("docs", "https://mcp.example/mcp")
    headers = {key: value.get_secret_value() for key, value in server.headers.items()}
    assert headers == {"X-A": "b", "Authorization": "Bearer ${secret:WEATHER_KEY}"}
    await desk.confirm(
        tool_md("docs", "url: https://mcp.example/mcp\n", type="mcp_server", more="is_active: false\n"), "docs"
    )
    assert desk.files.servers == {}
