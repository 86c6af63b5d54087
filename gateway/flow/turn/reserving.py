"""A model that is asked only when the most that its answer may cost is reserved."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from gateway.domain.conversation.model import Highest, ModelEvent, Prompt
from gateway.domain.principals import Role
from gateway.domain.work.tasks import Claim
from gateway.flow.turn.budgets import Budgets
from gateway.flow.turn.wiring import SizedModel


@dataclass(slots=True)
class Reserving:
    """For one run, of this person; `tree`: whether a tree's budget may bound it.

    A reservation ends when the reply's costs are stored, when the run reserves again, or with the run.
    """

    model: SizedModel
    budgets: Budgets
    run: Claim
    role: Role
    tree: bool = False
    _asked: bool = False

    async def stream(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """As the model's; raises `OutOfBudget`, and `RunLost`."""
        if self.tree or self.budgets.limited:
            await self.budgets.reserve(self.run, self.model.highest(prompt), self.role, asked_before=self._asked)
        self._asked = True
        async for event in self.model.stream(prompt):
            yield event

    def prompt_budget(self) -> int:
        """As the model's."""
        return self.model.prompt_budget()

    def highest(self, prompt: Prompt) -> Highest:
        """As the model's."""
        return self.model.highest(prompt)
