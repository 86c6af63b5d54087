"""`chat`: from the messages a session has unread to the answer that is committed for them."""

from collections.abc import Sequence

from gateway.background.jobs import Services
from gateway.config.failpoints import Step
from gateway.domain.channels.channel import Channel
from gateway.domain.conversation import digest
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.errors import DatabaseDown
from gateway.domain.text import marks
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.live import TurnEnded, TurnStarted
from gateway.flow.outbound.parts import abridge
from gateway.flow.trees.node import NO_AGENT, chat_part
from gateway.flow.turn.loop import SizedModel
from gateway.flow.turn.opening import ChatOpening, OpenedChat
from gateway.flow.turn.presence import drafts, seen_reaction, typing
from gateway.flow.turn.runner import RunOutcome, TurnResult
from gateway.flow.turn.steps import Sink
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import messages, sessions, tool_calls, unread
from gateway.store.transcript.messages import MessageRow


class ChatTurns:
    """The runner of `chat` tasks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._database = services.database
        self._outbound = services.outbound
        self._failpoints = services.failpoints

    async def run(self, run: Claim) -> None:
        """Answer what is unread in the session; raises `RunLost` when the run was cancelled or taken over."""
        self._failpoints.reach(Step.TURN_CLAIMED)
        opened = await self._database.run(ChatOpening(run=run).open)
        if opened is None:
            return
        self._failpoints.reach(Step.TURN_TAKEN)
        self._services.live.publish(opened.session, TurnStarted(opened.asked_ids, run))
        channel = self._outbound.channel(opened.at)
        async with seen_reaction(channel, opened.at, opened.asked):
            try:
                await self._answer(run, opened, channel)
            except DatabaseDown:
                self._services.outages.note(opened.at.address, private=opened.at.private)
                raise
            finally:
                self._services.live.publish(opened.session, TurnEnded(run))

    async def give_up(self, run: Claim) -> None:
        """Out of attempts: one message says so, and the next one starts afresh."""
        opened = await self._database.run(ChatOpening(run=run).open)
        if opened is not None:
            text = f"I could not answer: {run.max_attempts} attempts failed. Write again and I'll start fresh."
            async with seen_reaction(self._outbound.channel(opened.at), opened.at, opened.asked):
                await self._commit(run, opened, TurnResult(Notice(text), status=Status.FAILED, error="out of attempts"))

    async def _answer(self, run: Claim, opened: OpenedChat, channel: Channel | None) -> None:
        draft = opened.asked[-1].id
        async with typing(channel, opened.at), drafts(channel, opened.at, draft, self._services.clock) as sinks:
            result = await self._turn(opened, sinks)
        self._failpoints.reach(Step.ANSWER_READY)
        await self._commit(run, opened, result)

    async def _turn(self, opened: OpenedChat, sinks: Sequence[Sink]) -> TurnResult:
        """The result of the agent that a program named, or of the one that people chat with."""
        wanted, services = opened.client.agent, self._services
        if not wanted:
            model = services.named_model(opened.asked[-1].model)
            return await self._answered(opened, sinks, model)
        own = services.people.is_owner(opened.principal.id)
        found = {agent.slug: agent for agent in await services.environments.agents.trusted()} if own else {}
        if (agent := found.get(wanted)) is None:
            return TurnResult(Notice(NO_AGENT.format(wanted)), status=Status.FAILED, error="no agent")
        model = services.agent_model(agent.model, agent.head.temperature, agent.head.max_tokens)
        return await self._answered(opened.with_agent(chat_part(agent)), sinks, model)

    async def _answered(self, opened: OpenedChat, sinks: Sequence[Sink], model: SizedModel | None) -> TurnResult:
        turn_runner = self._services.turn_runner
        return await turn_runner.answer(await turn_runner.begin(opened), sinks, model)

    async def _commit(self, run: Claim, opened: OpenedChat, result: TurnResult) -> None:
        channel, environment = self._outbound.channel(opened.at), self._services.environments.of(run.principal_id)
        sent = await abridge(
            result.entry.text, result.label, channel, environment.workspace, self._services.clock.now()
        )

        async def store(tx: Connection, answer: MessageRow, _to: AddressRow | None) -> RunOutcome:
            """Its outbox rows; the task goes back to the queue if messages came meanwhile."""
            if opened.solo:
                await self._remember(tx, opened, result)
            files, asked = await sent.keep(tx, run.principal_id, answer.label), opened.asked[-1].platform_id
            said = isinstance(result.entry, AssistantText)
            shown = marks.sourced(sent.text, answer.label, private=opened.at.private) if said else sent.text
            await self._outbound.put(tx, opened.at, answer.id, shown, files=files, reply_to=asked)
            more = await unread.left(tx, opened.session)
            return RunOutcome(None if more else result.status, result.error)

        await self._services.finisher.finish(run, opened.session, result, store, at=opened.at)
        self._services.outages.over()

    async def _remember(self, tx: Connection, opened: OpenedChat, result: TurnResult) -> None:
        """Keep the digest by which a client that sends the whole conversation finds this session again."""
        heard = await sessions.digest(tx, opened.session)
        for row in opened.asked:
            if row.text or row.attached:
                heard = digest.extend(heard, "user", row.text)
        if isinstance(result.entry, AssistantText):
            since = opened.asked[0].seq or 0
            texts = await messages.said_since(tx, opened.session, since)
            said = digest.said(digest.spoken(texts), await tool_calls.handed_since(tx, opened.session, since))
            await sessions.set_digest(tx, opened.session, digest.extend(heard, "assistant", said))


runner = ChatTurns
