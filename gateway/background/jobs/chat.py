"""`chat`: the unread messages of a conversation are answered."""

from gateway.background.jobs import Services
from gateway.flow.turn.chat import ChatTurns


def runner(services: Services) -> ChatTurns:
    """For tasks of this kind."""
    return ChatTurns(
        services.database,
        services.turn_runner,
        services.finisher,
        services.environments,
        services.outbound,
        services.live,
        services.clock,
        services.failpoints,
        services.outages,
    )
