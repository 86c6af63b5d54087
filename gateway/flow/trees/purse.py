"""A tree's money, as one of its runs sees it: read again after each of its model calls."""

from dataclasses import dataclass

from gateway.agent.limits import Stop, tree_stop
from gateway.domain.events import ModelReplied, TurnEvent
from gateway.domain.tasks import Claim
from gateway.store import trees
from gateway.store.pool import Database
from gateway.store.trees import Place


@dataclass
class TreePurse:
    """A `Sink`, too; calls that runs of one tree make at the same time may each go a call beyond the limit."""

    database: Database
    run: Claim
    place: Place

    def stop(self) -> Stop | None:
        """Why no further call may be made, or None."""
        return tree_stop(self.place.spent_usd, self.place.budget_usd)

    async def take(self, event: TurnEvent) -> None:
        """After a call whose costs are stored: those of the whole tree."""
        if isinstance(event, ModelReplied) and event.intents and self.place.budget_usd is not None:
            async with self.database.connection() as conn:
                self.place = await trees.place(conn, self.run.id)
