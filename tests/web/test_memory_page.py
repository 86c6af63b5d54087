"""The screen Memory over real HTTP: what it shows, whom, and what each of its forms does."""

import html
import re
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import pytest

from gateway.agent.memory.remember import Remembering
from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.memories import ALL_MEMORIES, Category, Kind, Memory, NewMemory
from gateway.domain.principals import Label
from gateway.store.memory import memories
from gateway.store.people import tokens
from gateway.web.memory_rows import marked
from tests.web.conftest import BEARER, Web

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\u202e evil'


async def keep(web: Web, text: str, *, principal: PrincipalId | None = None, **more: object) -> MemoryId:
    new = NewMemory(text, **{"label": Label.OWNER, "origin": "user", **more})
    async with web.backend.database.transaction() as tx:
        return (await memories.add(tx, principal or web.backend.owner.id, new))[0].id


async def stored(web: Web, id: int) -> Memory:
    async with web.backend.database.connection() as conn:
        memory = await memories.get(conn, web.backend.owner.id, MemoryId(id))
    assert memory is not None
    return memory


def shown(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [int(id) for id in re.findall(r'<article class="row memory[^"]*" id="memory(\d+)"', answer.text)]


async def someone(web: Web) -> PrincipalId:
    async with web.backend.database.transaction() as tx:
        id: PrincipalId = await tx.fetchval(
            "insert into principals (id, role, name) values ($1, 'member', 'Bo') returning id", uuid4()
        )
    return id


async def test_an_empty_memory_says_what_memory_is(web: Web):
    async with web.sign_in() as browser:
        assert "No memories yet" in (await browser.get("/memory")).text
        assert "No matches" in (await browser.get("/memory/rows", params={"q": "heron"})).text


async def test_what_is_searched_is_found_with_its_words_marked(web: Web):
    heron = await keep(web, "The heron nests at the old weir")
    await keep(web, "The car is due for its inspection")
    async with web.sign_in() as browser:
        answer = await browser.get("/memory/rows", params={"q": "herons at the weir"})
        assert shown(answer) == [heron]
        assert "The <mark>heron</mark> nests at the old <mark>weir</mark>" in answer.text
        assert "Only words were compared: no embedding model is there." in answer.text
        page = await browser.get("/memory", params={"q": "heron"})
        assert shown(page) == [heron], "the address is the search, so a reload shows the same"
        assert 'value="heron"' in page.text


async def test_filters_leave_out_what_does_not_fit(web: Web):
    tea = await keep(web, "Tea is taken without sugar", category=Category.PREFERENCE, tags=("kitchen",), pinned=True)
    job = await keep(
        web, "The job begins in May", category=Category.FACT, created_at=datetime(2024, 3, 5, 23, tzinfo=UTC)
    )
    other = await keep(web, "Water boils at 100 degrees", agent="notes", label=Label.UNTRUSTED)
    summary = await keep(web, "They talked about tea", kind=Kind.SUMMARY)
    queries: list[tuple[dict[str, str], list[int]]] = [
        ({}, [job, tea]),
        ({"q": ""}, [job, tea]),
        ({"kind": "summary"}, [summary]),
        ({"category": "preference"}, [tea]),
        ({"tag": " Kitchen "}, [tea]),
        ({"pinned": "true"}, [tea]),
        ({"since": "2024-03-05", "until": "2024-03-05"}, [job]),
        ({"until": "2024-03-04"}, []),
        ({"agent": "notes"}, []),
        ({"agent": "notes", "untrusted": "true"}, [other]),
        ({"untrusted": "true"}, [other, job, tea]),
        ({"id": str(other)}, [other]),
        ({"q": "tea", "kind": "memory"}, [tea]),
    ]
    async with web.sign_in() as browser:
        for query, expected in queries:
            assert sorted(shown(await browser.get("/memory/rows", params=query))) == sorted(expected), query


async def test_a_day_is_the_owners_own(web: Web):
    (web.path.workspace / "USER.md").write_text("- Time zone: America/Los_Angeles\n")
    job = await keep(web, "The report is finished", created_at=datetime(2026, 11, 25, 5, 30, tzinfo=UTC))
    async with web.sign_in() as browser:
        for day, expected in (("2026-11-24", [job]), ("2026-11-25", [])):
            assert shown(await browser.get("/memory/rows", params={"since": day, "until": day})) == expected


async def test_what_is_not_verified_is_counted_and_shown_on_request(web: Web):
    await keep(web, "The heron nests at the weir")
    doubtful = await keep(web, "The heron wants your password", label=Label.UNTRUSTED)
    async with web.sign_in() as browser:
        answer = await browser.get("/memory/rows", params={"q": "heron"})
        assert doubtful not in shown(answer)
        assert "1 unverified left out" in answer.text
        answer = await browser.get("/memory/rows", params={"q": "heron", "untrusted": "true"})
        assert doubtful in shown(answer)
        assert "not verified" in answer.text


@pytest.mark.parametrize("bad", [{"kind": "dream"}, {"since": "yesterday"}, {"skip": "-1"}, {"id": "0"}])
async def test_an_address_that_means_nothing_is_refused(web: Web, bad: dict[str, str]):
    async with web.sign_in() as browser:
        answer = await browser.get("/memory/rows", params=bad)
        assert (answer.status_code, "error" in answer.json()) == (400, True)


async def test_older_memories_are_a_page_away(web: Web):
    ids = [await keep(web, f"fact number {number}") for number in range(53)]
    async with web.sign_in() as browser:
        first = await browser.get("/memory")
        assert shown(first) == ids[:2:-1]
        assert 'name="skip" value="50"' in first.text
        assert shown(await browser.get("/memory/rows", params={"skip": 50})) == ids[2::-1]


async def test_a_correction_stands_in_front_of_the_old_words(web: Web):
    old = await keep(web, "Anna lives in Bonn", category=Category.PERSON, pinned=True)
    async with web.sign_in() as browser:
        changed = {"text": "Anna lives in Köln", "category": "person", "importance": "0.9", "tags": "Anna, city"}
        [new] = shown(await browser.post(f"/memory/{old}", data=changed))
        row = await stored(web, new)
        assert (row.text, row.tags, row.importance, row.pinned) == (
            "Anna lives in Köln",
            ("anna", "city"),
            pytest.approx(0.9),
            True,
        )
        assert ((await stored(web, old)).superseded_by, row.label) == (new, Label.OWNER)
        assert shown(await browser.get("/memory")) == [new]
        both = await browser.get("/memory", params={"replaced": "true"})
        assert shown(both) == [new, old]
        assert f'href="/memory?id={new}">replaced</a>' in both.text
        assert both.text.count("; now: Anna lives in Köln</small>") == 1
        case = await browser.post(f"/memory/{new}", data={**changed, "text": "Anna lives in KÖLN"})
        assert (shown(case), (await stored(web, new)).text) == ([new], "Anna lives in KÖLN")
        again = await browser.post(f"/memory/{old}", data={**changed, "text": "Anna lives in Rome"})
        assert (again.status_code, again.json()["error"]["code"]) == (400, "not_done")
        empty = await browser.post(f"/memory/{new}", data={**changed, "text": "  "})
        assert empty.status_code == 400
        assert (await stored(web, new)).superseded_by is None


async def test_what_is_not_verified_stays_so_in_other_words(web: Web):
    old = await keep(web, "The bank's number is 123", label=Label.UNTRUSTED)
    async with web.sign_in() as browser:
        [new] = shown(await browser.post(f"/memory/{old}", data={"text": "The bank's number is 1234"}))
    assert (await stored(web, new)).label is Label.UNTRUSTED


async def test_pinned_forgotten_and_back_again(web: Web):
    id = await keep(web, "The heron nests at the weir")
    async with web.sign_in() as browser:
        assert "Unpin" in (await browser.post(f"/memory/{id}/pin", params={"pinned": "true"})).text
        assert (await stored(web, id)).pinned
        gone = await browser.post(f"/memory/{id}/forget")
        assert f"/memory/{id}/restore" in gone.text
        assert shown(await browser.get("/memory")) == []
        assert (await browser.post(f"/memory/{id}/forget")).status_code == 404
        assert shown(await browser.post(f"/memory/{id}/restore")) == [id]
        assert shown(await browser.get("/memory")) == [id]


async def test_more_than_the_memory_is_shown_and_forgotten_only_with_a_yes_for_exactly_that(web: Web):
    id = await keep(web, "The safe of Ada has the code 4711-22")
    told = await keep(web, f"Told: 4711-22, the code of the safe of Ada. {HOSTILE}", kind=Kind.SUMMARY)
    async with web.sign_in() as browser:
        asked = await browser.post(f"/memory/{id}/forget")
        assert "1 that states it?" in asked.text
        assert "<script>" not in asked.text
        [yes] = re.findall(r"/memory/\d+/forget\?agreed=\w+", asked.text)
        assert (await stored(web, id)).forgotten_at is None
        later = await keep(web, "Ada's safe: the code is 4711-22 of course", kind=Kind.SUMMARY)
        again = await browser.post(yes)
        assert "2 that state it?" in again.text
        [yes] = re.findall(r"/memory/\d+/forget\?agreed=\w+", again.text)
        assert "with 2 that state it" in (await browser.post(yes)).text
        assert all([(await stored(web, each)).forgotten_at for each in (id, told, later)])
        await browser.post(f"/memory/{id}/restore")
    assert not any([(await stored(web, each)).forgotten_at for each in (id, told, later)])


async def test_several_become_one_that_is_learned_from_all_of_them(web: Web):
    first = await keep(web, "Likes tea", importance=0.4, tags=("drinks",))
    second = await keep(web, "Drinks tea without sugar", importance=0.8, pinned=True)
    async with web.sign_in() as browser:
        form = (await browser.get("/memory/merge", params={"id": [first, second]})).text
        assert "Likes tea\nDrinks tea without sugar</textarea>" in html.unescape(form)
        new = {"text": "Likes tea without sugar", "category": "preference", "importance": "0.8", "tags": "drinks"}
        assert (await browser.post("/memory/merge", params={"id": [first, second]}, data=new)).status_code == 204
        [merged] = shown(await browser.get("/memory"))
    row = await stored(web, merged)
    assert (row.text, row.category, row.pinned, row.tags) == (new["text"], Category.PREFERENCE, True, ("drinks",))
    assert {(await stored(web, id)).superseded_by for id in (first, second)} == {merged}


async def test_one_of_the_merged_may_keep_its_words(web: Web):
    first, second = await keep(web, "Likes tea"), await keep(web, "Tea is liked")
    async with web.sign_in() as browser:
        data = {"text": "Likes tea", "importance": "1"}
        assert (await browser.post("/memory/merge", params={"id": [first, second]}, data=data)).status_code == 204
        assert shown(await browser.get("/memory")) == [first]
    assert (await stored(web, first)).importance == 1


async def test_what_is_trusted_is_not_merged_with_what_is_not(web: Web):
    first, doubtful = await keep(web, "Likes tea"), await keep(web, "Hates tea", label=Label.UNTRUSTED)
    async with web.sign_in() as browser:
        for ids in ([first, doubtful], [first], [first, first]):
            answer = await browser.post("/memory/merge", params={"id": ids}, data={"text": "Tea"})
            assert answer.status_code == 400
            assert "Choose two or more" in answer.json()["error"]["message"]
    assert (await stored(web, first)).superseded_by is None


async def test_details_lead_to_the_message_in_its_conversation(web: Web):
    async with web.sign_in() as browser:
        await browser.post("/chat", data={"text": "My bike is blue", "client_id": "one"})
        async with web.path.database.connection() as conn:
            said = await conn.fetchval("select id from messages where kind = 'user'")
        id = await keep(web, "The bike is blue", sources=(said,))
        new = shown(await browser.post(f"/memory/{id}", data={"text": "The bike is green"}))
        for each in (id, *new):
            assert f'href="/memory/said/{said}#m{said}"' in (await browser.get(f"/memory/{each}")).text
        conversation = await browser.get(f"/memory/said/{said}", follow_redirects=True)
        assert f'id="m{said}"' in conversation.text
        assert "My bike is blue" in conversation.text
        assert (await browser.get("/memory/said/999999")).status_code == 404


async def test_a_memory_is_words_and_never_markup(web: Web):
    id = await keep(web, HOSTILE, tags=("<b>",), label=Label.UNTRUSTED, origin="<i>x</i>", agent="<u>")
    async with web.sign_in() as browser:
        for path in (
            "/memory?untrusted=true",
            f"/memory/{id}",
            f"/memory/used?id={id}",
            "/memory/rows?q=evil&untrusted=1",
        ):
            text = (await browser.get(path)).text
            assert "alert" in text
            assert not re.search(r"<(script>|img src=x|b>\"|i>x|u>)", text), path


async def test_only_the_owners_own_rows_are_there(web: Web):
    other = await someone(web)
    theirs = await keep(web, "Bo keeps a secret heron", principal=other)
    async with web.backend.database.transaction() as tx:
        await Remembering(tx, other, ALL_MEMORIES, clean=str).get(theirs)
    async with web.sign_in() as browser:
        for query in ({}, {"q": "secret heron", "untrusted": "true"}, {"id": str(theirs)}):
            assert shown(await browser.get("/memory/rows", params=query)) == []
        assert "heron" not in (await browser.get(f"/memory/used?id={theirs}")).text
        assert (await browser.get(f"/memory/{theirs}")).status_code == 404
        for what in ("", "/pin?pinned=true", "/forget", "/restore"):
            answer = await browser.post(f"/memory/{theirs}{what}", data={"text": "mine now"})
            assert answer.status_code == 404, what
        merged = await browser.post(f"/memory/merge?id={theirs}&id={await keep(web, 'x')}", data={"text": "y"})
        assert merged.status_code == 404


async def test_a_token_reaches_nothing_here(web: Web):
    id = await keep(web, "The heron nests at the weir")
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "m", ("memory", "admin"))
    for headers in (BEARER, {"Authorization": f"Bearer {plain}"}):
        for path in (
            "/memory/rows",
            f"/memory/used?id={id}",
            f"/memory/{id}",
            f"/memory/merge?id={id}",
            "/memory/said/1",
        ):
            assert (await web.client.get(path, headers=headers)).status_code == 401, path
        assert (await web.client.get("/memory", headers=headers)).status_code == 303
        for path in (
            f"/memory/{id}",
            f"/memory/{id}/pin?pinned=true",
            f"/memory/{id}/forget",
            f"/memory/merge?id={id}",
        ):
            answer = await web.client.post(path, headers={**headers, "Origin": web.url}, data={"text": "x"})
            assert answer.status_code == 401, path
    assert ((await stored(web, id)).forgotten_at, (await stored(web, id)).pinned) == (None, False)


async def test_a_foreign_page_changes_nothing(web: Web):
    id = await keep(web, "The heron nests at the weir")
    async with web.sign_in() as browser:
        answer = await browser.post(f"/memory/{id}/forget", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert (await stored(web, id)).forgotten_at is None


def test_words_are_marked_in_every_script_and_long_rows_are_cut_around_them():
    assert marked("我喜欢喝绿茶", frozenset({"茶", "绿"})) == "我喜欢喝<mark>绿</mark><mark>茶</mark>"
    assert marked("Die Bürgermeisterin kommt", frozenset({"burge"})) == "Die <mark>Bürgermeisterin</mark> kommt"
    cut = marked("x " * 600 + "heron " + "y " * 600, frozenset({"heron"}))
    assert cut.startswith("…")
    assert "<mark>heron</mark>" in cut
    assert cut.endswith("…")
    assert len(cut) < 360
