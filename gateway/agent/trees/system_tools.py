"""The tools that every node of a task tree has: the engine carries them out, under the fence of the node's run."""

from collections.abc import Mapping
from typing import TypeAlias

from pydantic import ValidationError

from gateway.agent.schema import explained, parameters_of
from gateway.domain.conversation.model import ToolSpec
from gateway.domain.conversation.tools import ToolArguments
from gateway.domain.work.trees import (
    CompleteTask,
    CreateSubtask,
    Handoff,
    LoadSkill,
    RequestHumanReview,
    SaveIntermediateData,
)

SystemCall: TypeAlias = CreateSubtask | Handoff | RequestHumanReview | SaveIntermediateData | CompleteTask | LoadSkill

_TOOLS: Mapping[str, tuple[type[SystemCall], str]] = {
    "create_subtask": (
        CreateSubtask,
        "Give work to agents: several tasks run side by side. You go on when all have ended, with every result; a "
        "failed one is a result, too.",
    ),
    "handoff": (Handoff, "Let another agent go on with this task instead of you; it sees all that was said here."),
    "request_human_review": (RequestHumanReview, "Ask a person and wait for the answer: approved or not, a comment."),
    "save_intermediate_data": (SaveIntermediateData, "Keep fields of data with the task; fields of before stay."),
    "complete_task": (CompleteTask, "End the task with its result."),
    "load_skill": (LoadSkill, "The instructions of a skill."),
}

SPECS = tuple(ToolSpec(name, text, parameters_of(arguments)) for name, (arguments, text) in _TOOLS.items())


class BadCall(Exception):
    """The arguments can't be used; the text is for the model."""


def parse(tool: str, arguments: str) -> SystemCall:
    """Raises `BadCall`."""
    model: type[ToolArguments] = _TOOLS[tool][0]
    try:
        found = model.model_validate_json(arguments.strip() or "{}")
    except ValidationError as error:
        raise BadCall(explained(tool, model, error)) from error
    assert isinstance(found, SystemCall), "the table says so"
    return found
