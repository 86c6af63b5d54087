"""smolagents: a code agent, and one that calls tools."""

import os

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """Degrees in a city.

    Args:
        city: Its name.
    """
    asked.append(city)
    return "21"


asked: list[str] = []
model = OpenAIServerModel("default", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
answer = CodeAgent(tools=[get_weather], model=model, max_steps=3).run("write code mk950x")
assert "fin950x" in str(answer), answer
answer = ToolCallingAgent(tools=[get_weather], model=model, max_steps=4).run("weather mk951x")
assert "fin951x" in str(answer), answer
assert asked == ["Rome"], asked
