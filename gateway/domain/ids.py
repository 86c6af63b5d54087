"""Identifiers, one type each, so that a session id cannot be passed where a task id belongs."""

from typing import NewType
from uuid import UUID

PrincipalId = NewType("PrincipalId", UUID)
SessionId = NewType("SessionId", UUID)
TaskId = NewType("TaskId", UUID)
InstanceId = NewType("InstanceId", UUID)
EntryId = NewType("EntryId", UUID)
FileId = NewType("FileId", UUID)

AddressId = NewType("AddressId", int)
JournalId = NewType("JournalId", int)
InboxId = NewType("InboxId", int)
MessageId = NewType("MessageId", int)
OutboxId = NewType("OutboxId", int)
ScheduleId = NewType("ScheduleId", int)
ReviewId = NewType("ReviewId", int)
GrantId = NewType("GrantId", int)
MemoryId = NewType("MemoryId", int)
