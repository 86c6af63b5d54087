"""pydantic-ai: an agent with a tool, over both APIs."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

for number, model in enumerate((OpenAIChatModel("default"), OpenAIResponsesModel("default")), 401):
    agent = Agent(model)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Degrees in a city."""
        return "21"

    answer = agent.run_sync(f"weather mk{number}x")
    assert f"fin{number}x" in answer.output, answer
