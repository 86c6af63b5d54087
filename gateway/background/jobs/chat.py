"""`chat`: answers the unread messages of a session."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.background.jobs import OUT_OF_ATTEMPTS, Delivery, JobParts, Models
from gateway.config.failpoints import Step
from gateway.domain.channels.channel import Channel
from gateway.domain.conversation import digest
from gateway.domain.conversation.inbound import PROGRAMS
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.errors import DatabaseDown
from gateway.domain.principals import Label
from gateway.domain.settings import voice_reply
from gateway.domain.text import marks
from gateway.domain.work.tasks import Claim, Lane, Status, TurnResult
from gateway.flow.engine import Engine
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.live import TurnEnded, TurnStarted
from gateway.flow.outbound.parts import abridge
from gateway.flow.trees.node import NO_AGENT, chat_part
from gateway.flow.turn.loop import SizedModel
from gateway.flow.turn.opening import ChatOpening, OpenedChat
from gateway.flow.turn.presence import drafts, seen_reaction, typing
from gateway.flow.turn.runner import AgentParts, RunOutcome
from gateway.flow.turn.steps import Sink
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import messages, sessions, tool_calls, unread
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks

TOO_LATE = "(Your newest message came when I had written this; I answer it next.)"


@dataclass(slots=True)
class ChatTurns:
    """The runner of `chat` tasks."""

    engine: Engine
    agents: AgentParts
    delivery: Delivery
    workspaces: Workspaces
    models: Models

    async def run(self, run: Claim) -> None:
        """Answer the unread messages of the session; raises `RunLost` if the run was cancelled or taken over."""
        self.engine.failpoints.reach(Step.TURN_CLAIMED)
        opened = await self.engine.database.run_alone(ChatOpening.of(run).open)
        if opened is None:
            return
        self.engine.failpoints.reach(Step.TURN_TAKEN)
        self.engine.live.publish(opened.session, TurnStarted(opened.asked_ids, run))
        channel = self.delivery.outbound.channel(opened.at)
        async with seen_reaction(channel, opened.at, opened.asked):
            try:
                await self._answer(run, opened, channel)
            except DatabaseDown:
                self.delivery.outages.note(opened.at.address, private=opened.at.private)
                raise
            finally:
                self.engine.live.publish(opened.session, TurnEnded(run))

    async def give_up(self, run: Claim) -> None:
        """Report that the attempts are used up; the next message starts fresh."""
        opened = await self.engine.database.run_alone(ChatOpening.of(run).open)
        if opened is not None:
            text = f"I could not answer: {run.max_attempts} attempts failed. Write again and I'll start fresh."
            async with seen_reaction(self.delivery.outbound.channel(opened.at), opened.at, opened.asked):
                await self._commit(run, opened, TurnResult(Notice(text), status=Status.FAILED, error=OUT_OF_ATTEMPTS))

    async def _answer(self, run: Claim, opened: OpenedChat, channel: Channel | None) -> None:
        draft = opened.asked[-1].id
        async with typing(channel, opened.at), drafts(channel, opened.at, draft, self.engine.clock) as sinks:
            result = await self._turn(opened, sinks)
        self.engine.failpoints.reach(Step.ANSWER_READY)
        await self._commit(run, opened, result)

    async def _turn(self, opened: OpenedChat, sinks: Sequence[Sink]) -> TurnResult:
        """The result of the agent that a program named, or of the agent that people chat with."""
        wanted = opened.client.agent
        own = self.engine.people.is_owner(opened.principal.id)
        if not wanted:
            return await self._answered(opened, sinks, self.models.chat(opened.asked[-1].model, opened.at, owner=own))
        found = {agent.slug: agent for agent in await self.agents.environments.own.agents.trusted()} if own else {}
        if (agent := found.get(wanted)) is None:
            return TurnResult(Notice(NO_AGENT.format(wanted)), status=Status.FAILED, error="no agent")
        model = self.models.agent(agent.model, agent.head.temperature, agent.head.max_tokens)
        return await self._answered(opened.with_agent(chat_part(agent, Label.OWNER)), sinks, model)

    async def _answered(self, opened: OpenedChat, sinks: Sequence[Sink], model: SizedModel | None) -> TurnResult:
        return await self.agents.runner.answer(await self.agents.runner.begin(opened), sinks, model)

    async def _commit(self, run: Claim, opened: OpenedChat, result: TurnResult) -> None:
        channel, workspace = self.delivery.outbound.channel(opened.at), self.workspaces.of(run.principal_id)
        sent = await abridge(result.entry.text, result.label, channel, workspace, self.engine.clock.now())

        asked, said = opened.asked[-1].platform_id, isinstance(result.entry, AssistantText)
        aloud = said and self._is_read_aloud(opened, channel)

        def shown(label: Label) -> str:
            return marks.sourced(sent.text, label, private=opened.at.private) if said else sent.text

        async def store(tx: Connection, answer: MessageRow, _to: AddressRow | None) -> RunOutcome:
            """Store the answer's outbox rows; the task returns to the queue if new messages arrived meanwhile."""
            if opened.solo:
                await self._remember(tx, opened, result)
            files, text = await sent.keep(tx, run.principal_id, answer.label), shown(answer.label)
            more = await unread.left(tx, opened.session)
            if more and said and await unread.follows(tx, opened.session, answer.id):
                text = f"{text}\n\n{TOO_LATE}"
            await self.delivery.outbound.put(tx, opened.at, answer.id, text, files=files, reply_to=asked)
            if aloud:
                await tasks.create(tx, run.principal_id, "speak", Lane.AGENTS, payload={"message": answer.id})
            return RunOutcome(None if more else result.status, result.error)

        plain = not (opened.solo or aloud or sent.whole) and opened.at.principal_id == run.principal_id
        parts = self.delivery.outbound.parts(opened.at, shown(result.label), reply_to=asked) if plain else ()
        if not plain or not await self.agents.finisher.answer(opened, result, parts):
            await self.agents.finisher.finish(opened, result, store)
        self.delivery.outages.over()

    def _is_read_aloud(self, opened: OpenedChat, channel: Channel | None) -> bool:
        speech = self.models.speech()
        if speech is None or opened.at.channel in PROGRAMS or (channel and not channel.capabilities.max_file):
            return False
        when = voice_reply(opened.at.voice, speech.reply, owner=self.engine.people.is_owner(opened.principal.id))
        spoken = any(file.mime.startswith("audio/") for row in opened.asked for file in row.attached)
        return when == "always" or (when == "voice" and spoken)

    async def _remember(self, tx: Connection, opened: OpenedChat, result: TurnResult) -> None:
        """Store the digest by which a client that sends the whole conversation finds this session again."""
        heard = await sessions.digest(tx, opened.session)
        for row in opened.asked:
            if row.text or row.attached:
                heard = digest.extend(heard, "user", row.text)
        if isinstance(result.entry, AssistantText):
            since = opened.asked[0].seq or 0
            texts = await messages.said_since(tx, opened.session, since)
            said = digest.said(digest.spoken(texts), await tool_calls.handed_since(tx, opened.session, since))
            await sessions.set_digest(tx, opened.session, digest.extend(heard, "assistant", said))


def runner(parts: JobParts) -> ChatTurns:
    """The runner of `chat` tasks."""
    return ChatTurns(parts.engine, parts.agents, parts.delivery, parts.files.workspaces, parts.models)
