import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels.slack.channel import Slack
from gateway.domain.channels.channel import (
    Button,
    FetchDelayed,
    FetchFailed,
    Outgoing,
    OutgoingFile,
    SendDelayed,
    SendFailed,
    SendUncertain,
)
from gateway.domain.conversation.inbound import Address, Attachment
from tests.channels.test_slack import receiving, settled
from tests.contract.slack import slack_on
from tests.fakes.log import Log
from tests.fakes.slack import FakeSlack, buttons

ADA = Address("slack", "T1", "77")
THREAD = Address("slack", "T1", "D7", "1.5")


@pytest.fixture
async def platform() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as platform:
        platform.messages |= {"D7": [{"ts": "1.5", "user": "77", "text": "root"}], "C5": []}
        yield platform


@pytest.fixture
async def channel(platform: FakeSlack, tmp_path: Path) -> AsyncIterator[Slack]:
    channel = slack_on(platform, Log(), tmp_path)
    await channel.open()
    yield channel
    await channel.close()


@pytest.fixture
async def next_life(platform: FakeSlack, tmp_path: Path) -> AsyncIterator[Slack]:
    """The channel after a crash of the gateway, once it is opened."""
    channel = slack_on(platform, Log(), tmp_path)
    yield channel
    await channel.close()


def answer(text: str, at: Address = ADA, **about: Any) -> Outgoing:
    return Outgoing(at, text, **({"key": "supaclaw-1"} | about))


def called(platform: FakeSlack, *prefixes: str) -> Sequence[str]:
    return [name for name, _ in platform.calls if name.startswith(prefixes)]


# --- messages ---


async def test_a_message_carries_its_key_and_no_previews(platform: FakeSlack, channel: Slack) -> None:
    ts = await channel.send(answer("**hi** <!channel>", THREAD))
    (posted,) = platform.named("chat.postMessage")
    assert posted == {
        "channel": "D7",
        "thread_ts": "1.5",
        "text": "*hi* &lt;!channel&gt;",
        "metadata": {"event_type": "supaclaw", "event_payload": {"key": "supaclaw-1"}},
        "unfurl_links": False,
        "unfurl_media": False,
    }
    assert platform.sent[0]["ts"] == ts


@pytest.mark.parametrize("at", [ADA, THREAD])
async def test_a_message_that_was_shown_after_all_is_not_repeated(
    platform: FakeSlack, channel: Slack, at: Address
) -> None:
    platform.page = 2
    platform.drop_response("chat.postMessage")
    with pytest.raises(SendUncertain):
        await channel.send(answer("once", at))
    for number in range(5):
        platform.say(str(number), at.chat, thread=at.thread or None)
    assert await channel.send(answer("once", at, again=True)) == platform.sent[0]["ts"]
    assert platform.shown == ["once"]


@pytest.mark.parametrize("trouble", [{"error": "missing_scope"}, {"error": "internal_error", "status": 500}])
async def test_what_cannot_be_looked_up_stays_in_doubt(
    platform: FakeSlack, channel: Slack, trouble: dict[str, Any]
) -> None:
    platform.fault("conversations.history", **trouble)
    with pytest.raises(SendUncertain) as doubt:
        await channel.send(answer("once", again=True))
    assert (doubt.value.lasting, platform.shown) == (trouble["error"] == "missing_scope", [])


async def test_a_chat_too_busy_to_look_through_leaves_it_in_doubt(platform: FakeSlack, channel: Slack) -> None:
    platform.page = 1
    for number in range(12):
        platform.say(str(number))
    with pytest.raises(SendUncertain, match="too many messages"):
        await channel.send(answer("once", again=True))


@pytest.mark.parametrize(
    "error", ["channel_not_found", "not_in_channel", "is_archived", "msg_too_long", "no_text", "restricted_action"]
)
async def test_a_refusal_is_final_and_says_why(platform: FakeSlack, channel: Slack, error: str) -> None:
    platform.fault("chat.postMessage", error)
    with pytest.raises(SendFailed, match=rf"^[^\n]+ \({error}\)$"):
        await channel.send(answer("hi"))


async def test_a_revoked_token_delays_until_the_owner_acted(platform: FakeSlack, channel: Slack) -> None:
    platform.revoked = True
    for again in (False, True):
        with pytest.raises(SendDelayed) as delayed:
            await channel.send(answer("hi", again=again))
        assert delayed.value.retry_after == 1


@pytest.mark.parametrize(
    "error",
    [
        *("ratelimited", "rate_limited", "message_limit_exceeded", "team_added_to_org", "accesslimited", "odd"),
        *("account_inactive", "token_revoked", "org_login_required", "ekm_access_denied", "missing_scope"),
    ],
)
async def test_what_lies_not_in_the_message_waits(platform: FakeSlack, channel: Slack, error: str) -> None:
    platform.fault("chat.postMessage", error)
    with pytest.raises(SendDelayed, match=r"^[^\n]+$"):
        await channel.send(answer("hi"))
    await channel.send(answer("hi"))
    assert platform.shown == ["hi"]


@pytest.mark.parametrize("error", ["internal_error", "fatal_error", "service_unavailable", "request_timeout"])
async def test_what_may_have_been_shown_is_looked_for(platform: FakeSlack, channel: Slack, error: str) -> None:
    platform.fault("chat.postMessage", error)
    with pytest.raises(SendUncertain) as doubt:
        await channel.send(answer("hi"))
    assert not doubt.value.lasting
    await channel.send(answer("hi", again=True))
    assert platform.shown == ["hi"]


@pytest.mark.parametrize(
    ("given", "seconds"), [("7", 7), ("soon", 1), ("0", 1), ("-3", 1), ("nan", 1), ("999999", 3600)]
)
async def test_a_rate_limit_delays(platform: FakeSlack, channel: Slack, given: str, seconds: float) -> None:
    platform.fault("chat.postMessage", "ratelimited", status=429, Retry_After=given)
    with pytest.raises(SendDelayed) as delayed:
        await channel.send(answer("hi"))
    assert delayed.value.retry_after == seconds


async def test_an_answer_without_an_id_is_in_doubt(platform: FakeSlack, channel: Slack) -> None:
    platform.garble("chat.postMessage")
    with pytest.raises(SendUncertain, match="unreadable"):
        await channel.send(answer("hi"))
    await channel.send(answer("hi", again=True))
    assert platform.shown == ["hi"]


# --- buttons ---


async def test_buttons_are_shown_under_the_text_and_their_press_comes_in(platform: FakeSlack, channel: Slack) -> None:
    choices = (Button("Yes", "/approve A1"), Button("N" * 100, "/deny A1"))
    await channel.send(answer("Really **now**? " + "x" * 3500, buttons=choices))
    (message,) = platform.sent
    assert buttons(message) == ["Yes", "N" * 75]
    sections = [block["text"]["text"] for block in message["blocks"] if block["type"] == "section"]
    assert all(len(section) <= 3000 for section in sections)
    assert "".join(sections).startswith("Really *now*?")
    async with receiving(channel) as gateway:
        platform.press("/approve A1")
        (inbound,) = await gateway.received(1)
        await settled(platform)
    assert (inbound.text, inbound.address, inbound.private) == ("/approve A1", ADA, True)


# --- growing answers ---


async def test_an_answer_grows_and_ends_as_one_message(platform: FakeSlack, channel: Slack) -> None:
    for text in ("Hel", "Hello **wor", "Hello **wor"):
        await channel.draft(THREAD, 1, text)
    assert platform.shown == ["Hello **wor"]
    ts = await channel.send(answer("Hello **world**", THREAD))
    assert platform.shown == ["Hello **world**"]
    assert called(platform, "chat") == ["chat.startStream", "chat.appendStream", "chat.stopStream"]
    assert await channel.send(answer("Hello **world**", THREAD, again=True)) == ts
    assert len(platform.sent) == 1


async def test_an_answer_that_took_back_words_replaces_them(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Let me look.")
    await channel.draft(THREAD, 1, "It is *here*")
    assert platform.shown == ["Let me look.\n\nIt is *here*"]
    await channel.send(answer("It is *here*.", THREAD))
    assert platform.shown == ["It is _here_."]
    await channel.send(answer("next", THREAD, key="supaclaw-2"))
    assert platform.shown == ["It is _here_.", "next"]


async def test_the_first_part_of_a_long_answer_takes_the_place_of_what_grew(
    platform: FakeSlack, channel: Slack
) -> None:
    await channel.draft(THREAD, 1, "one two")
    await channel.draft(THREAD, 1, "one two " * 3000)
    await channel.send(answer("one", THREAD))
    await channel.send(answer("two", THREAD, key="supaclaw-2"))
    assert platform.shown == ["one", "two"]


async def test_a_stream_that_slack_ended_is_completed_all_the_same(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Wait")
    platform.expire_streams()
    for text in ("Wait for it", "Wait for it."):
        await channel.draft(THREAD, 1, text)
    assert len(called(platform, "chat.appendStream")) == 1
    await channel.send(answer("Wait for it.", THREAD))
    assert platform.shown == ["Wait for it."]


async def test_a_stream_that_ended_just_before_the_answer_is_completed(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Wait")
    platform.expire_streams()
    await channel.send(answer("Wait for it.", THREAD))
    assert platform.shown == ["Wait for it."]


async def test_an_answer_with_buttons_replaces_what_grew(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "May")
    await channel.send(answer("May I?", THREAD, buttons=(Button("Yes", "y"),)))
    assert (platform.shown, buttons(platform.sent[0])) == (["May I?"], ["Yes"])


async def test_an_answer_too_long_to_replace_what_grew_is_shown_alone(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Hm")
    await channel.send(answer("&" * 3000, THREAD))
    assert platform.shown == ["&" * 3000]


async def test_an_answer_is_seen_once_although_its_receipt_was_lost(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Hel")
    platform.drop_response("chat.stopStream")
    with pytest.raises(SendUncertain):
        await channel.send(answer("Hello", THREAD))
    await channel.send(answer("Hello", THREAD, again=True))
    assert platform.shown == ["Hello"]


async def test_a_stream_is_completed_later_when_slack_asks_to_wait(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Hel")
    platform.fault("chat.stopStream", "ratelimited", status=429, Retry_After="3")
    with pytest.raises(SendDelayed):
        await channel.send(answer("Hello", THREAD))
    await channel.send(answer("Hello", THREAD))
    assert platform.shown == ["Hello"]


@pytest.mark.parametrize("lost", ["chat.startStream", "chat.appendStream"])
async def test_a_stream_nobody_is_sure_of_is_found_and_completed(
    platform: FakeSlack, channel: Slack, lost: str
) -> None:
    platform.drop_response(lost)
    for text in ("Hel", "Hello wor", "Hello world"):
        await channel.draft(THREAD, 1, text)
    await channel.send(answer("Hello world", THREAD))
    assert platform.shown == ["Hello world"]


@pytest.mark.parametrize("method", ["chat.startStream", "chat.appendStream"])
async def test_a_stream_whose_drawing_was_cancelled_on_the_way_becomes_the_answer(
    platform: FakeSlack, channel: Slack, method: str
) -> None:
    for text in ("Hel", "Hello wor"):
        drawing = asyncio.create_task(channel.draft(THREAD, 1, text))
        if method == ("chat.startStream" if text == "Hel" else "chat.appendStream"):
            await platform.wait_for(lambda fake: bool(called(fake, method)))
            drawing.cancel()
        await asyncio.wait([drawing])
    await channel.send(answer("Hello world", THREAD))
    assert platform.shown == ["Hello world"]


async def test_what_a_crash_left_growing_becomes_the_answer(
    platform: FakeSlack, channel: Slack, next_life: Slack
) -> None:
    await channel.send(answer("earlier", THREAD, key="supaclaw-0"))
    await channel.draft(THREAD, 1, "Hel")
    await next_life.open()
    await next_life.send(answer("Hello", THREAD))
    assert platform.shown == ["earlier", "Hello"]


async def test_what_a_crash_left_growing_is_taken_away_when_the_answer_grew_anew(
    platform: FakeSlack, channel: Slack, next_life: Slack
) -> None:
    await channel.draft(THREAD, 1, "Hel")
    await next_life.open()
    await next_life.draft(THREAD, 1, "Hello wor")
    assert len(platform.sent) == 2
    await next_life.send(answer("Hello world", THREAD))
    assert platform.shown == ["Hello world"]


async def test_where_nothing_can_grow_nothing_is_tried(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(ADA, 1, "Hel")
    await channel.draft(Address("slack", "T1", "C5", "1.5"), 1, "Hel")
    assert platform.calls == []


async def test_in_a_channel_an_answer_grows_for_whoever_asked(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel) as gateway:
        platform.say("<@UBOT> hello", "C5", kind="channel")
        (inbound,) = await gateway.received(1)
        await settled(platform)
    await channel.draft(inbound.address, 1, "Hel")
    (started,) = platform.named("chat.startStream")
    assert (started["recipient_team_id"], started["recipient_user_id"]) == ("T1", "77")


async def test_drafts_wait_while_slack_asks_to(platform: FakeSlack, channel: Slack) -> None:
    platform.fault("chat.startStream", "ratelimited", status=429, Retry_After="60")
    await channel.draft(THREAD, 1, "Hel")
    await channel.draft(THREAD, 1, "Hello")
    assert called(platform, "chat") == ["chat.startStream"]
    await channel.send(answer("Hello", THREAD))
    assert platform.shown == ["Hello"]


async def test_a_refused_stream_is_not_tried_again_in_the_same_answer(platform: FakeSlack, channel: Slack) -> None:
    platform.fault("chat.startStream", "not_allowed")
    for text in ("Hel", "Hello"):
        await channel.draft(THREAD, 1, text)
    assert called(platform, "chat") == ["chat.startStream"]


async def test_a_stream_waits_for_a_new_token_to_be_completed(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Let me see")
    platform.revoked = True
    with pytest.raises(SendDelayed):
        await channel.send(answer("Hello", THREAD))
    platform.revoked = False
    await channel.send(answer("Hello", THREAD))
    assert platform.shown == ["Hello"]


async def test_an_earlier_answer_is_never_taken_for_what_a_stream_left(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel):
        root = platform.say("one?", "D7")["ts"]
        thread = replace(THREAD, thread=root)
        second = platform.say("two?", "D7", thread=root)
        await settled(platform)
        await channel.send(answer("one", thread, key="supaclaw-0"))
        platform.sent[0].pop("metadata")
        platform.say("three?", "D7", thread=root)
        platform.edit(second, "two??")
        await settled(platform)
    platform.drop_response("chat.startStream")
    await channel.draft(thread, 1, "tw")
    await channel.send(answer("two", thread))
    assert platform.shown == ["one", "two"]


async def test_a_status_is_not_set_beside_a_growing_answer(platform: FakeSlack, channel: Slack) -> None:
    await channel.draft(THREAD, 1, "Hel")
    await channel.typing(THREAD)
    assert platform.statuses == []


# --- files out ---


@pytest.fixture
def report(tmp_path: Path) -> OutgoingFile:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"%PDF" * 1000)
    return OutgoingFile(str(path), "Report & more.pdf", "application/pdf", 4000)


async def test_a_file_is_shown_with_its_caption_where_it_belongs(
    platform: FakeSlack, channel: Slack, report: OutgoingFile
) -> None:
    id = await channel.send(answer("**Done**", THREAD, file=report))
    (message,) = platform.sent
    assert (message["text"], message["thread_ts"]) == ("*Done*", "1.5")
    assert message["files"][0]["name"] == "Report & more.pdf"
    assert platform.content[id] == b"%PDF" * 1000


async def test_a_file_that_was_shown_after_all_is_not_repeated(
    platform: FakeSlack, channel: Slack, report: OutgoingFile
) -> None:
    platform.drop_response("files.completeUploadExternal")
    with pytest.raises(SendUncertain):
        await channel.send(answer("", file=report))
    await channel.send(answer("", file=report, again=True))
    assert len(platform.sent) == 1


async def test_a_file_that_was_uploaded_but_never_shown_is_shown(
    platform: FakeSlack, channel: Slack, report: OutgoingFile
) -> None:
    platform.fault("files.completeUploadExternal", "internal_error", status=500)
    with pytest.raises(SendUncertain):
        await channel.send(answer("", file=report))
    await channel.send(answer("", file=report, again=True))
    assert len(platform.sent) == len(platform.named("files.getUploadURLExternal")) == 1


@pytest.mark.parametrize(("status", "seconds"), [(429, 9), (500, 1)])
async def test_an_upload_that_was_turned_away_comes_later(
    platform: FakeSlack, channel: Slack, report: OutgoingFile, status: int, seconds: float
) -> None:
    platform.fault("upload", "odd", status=status, Retry_After="9")
    with pytest.raises(SendDelayed) as delayed:
        await channel.send(answer("", file=report))
    assert delayed.value.retry_after == seconds


async def test_a_file_that_cannot_be_looked_up_stays_in_doubt(
    platform: FakeSlack, channel: Slack, report: OutgoingFile
) -> None:
    platform.drop_response("files.completeUploadExternal")
    platform.fault("files.info", "missing_scope")
    for again in (False, True):
        with pytest.raises(SendUncertain):
            await channel.send(answer("", file=report, again=again))
    assert len(platform.sent) == 1


async def test_a_file_that_is_gone_is_a_failure(channel: Slack, report: OutgoingFile) -> None:
    with pytest.raises(SendFailed, match="cannot be read"):
        await channel.send(answer("", file=replace(report, path=f"{report.path}.gone")))


# --- files in ---


async def fetched(channel: Slack, id: str) -> bytes:
    return b"".join([piece async for piece in channel.fetch(Attachment(id, "a.bin"))])


async def test_a_file_is_fetched_with_the_token(platform: FakeSlack, channel: Slack) -> None:
    id = platform.file(b"\0" * 200_000, "a.bin", "application/octet-stream")
    assert await fetched(channel, id) == b"\0" * 200_000
    assert platform.downloads == [(id, f"Bearer {platform.bot_token}")]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"url_private_download": None}, "not stored at Slack"),
        ({"is_external": True}, "not stored at Slack"),
        ({"url_private_download": "https://evil.example/files/F1"}, "evil.example"),
        ({"url_private_download": "https://files.slack.com.evil.example/F1"}, "evil.example"),
    ],
)
async def test_the_token_goes_to_no_other_host(
    platform: FakeSlack, channel: Slack, about: dict[str, Any], why: str
) -> None:
    id = platform.file(b"x", "a.bin", "text/plain", **about)
    with pytest.raises(FetchFailed, match=why):
        await fetched(channel, id)
    assert platform.downloads == []


async def test_a_page_to_log_in_is_no_file(platform: FakeSlack, channel: Slack) -> None:
    id = platform.file(b"x", "a.bin", "application/pdf")
    platform.locked.add(id)
    with pytest.raises(FetchFailed, match="files:read"):
        await fetched(channel, id)


async def test_a_file_that_slack_lost_is_gone_for_good(platform: FakeSlack, channel: Slack) -> None:
    id = platform.file(b"x", "a.bin", "text/plain")
    del platform.content[id]
    with pytest.raises(FetchFailed, match="http_404"):
        await fetched(channel, id)
    with pytest.raises(FetchFailed, match="file_not_found"):
        await fetched(channel, "F404")


@pytest.mark.parametrize(
    ("status", "outcome"), [(302, FetchFailed), (403, FetchFailed), (429, FetchDelayed), (503, FetchDelayed)]
)
async def test_a_download_that_is_turned_away_is_over_or_comes_later(
    platform: FakeSlack, channel: Slack, status: int, outcome: type[Exception]
) -> None:
    id = platform.file(b"x", "a.bin", "text/plain")
    platform.fault("download", "odd", status=status, Location="https://evil.example/")
    with pytest.raises(outcome):
        await fetched(channel, id)
    assert len(platform.downloads) == 1


async def test_half_a_file_is_no_file(platform: FakeSlack, channel: Slack) -> None:
    id = platform.file(b"x" * 1_000_000, "a.bin", "text/plain")
    platform.drop_response("download")
    with pytest.raises(FetchDelayed):
        await fetched(channel, id)
    assert len(await fetched(channel, id)) == 1_000_000


async def test_a_revoked_token_only_delays_files(platform: FakeSlack, channel: Slack) -> None:
    id = platform.file(b"x", "a.bin", "text/plain")
    platform.revoked = True
    with pytest.raises(FetchDelayed):
        await fetched(channel, id)
