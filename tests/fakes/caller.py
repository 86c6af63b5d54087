"""Somebody who calls tools, where it does not matter who."""

from uuid import UUID

from gateway.domain.conversation.tools import Caller
from gateway.domain.ids import AddressId, SessionId, TaskId
from gateway.domain.principals import Label


async def unfenced() -> None:
    """No other run could take the task over."""


CALLER = Caller(TaskId(UUID(int=1)), 0, SessionId(UUID(int=2)), AddressId(1), Label.OWNER, unfenced, unfenced)
