"""openai-agents: an agent with a tool, over the Responses API (its default) and over chat completions."""

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_tracing_disabled(disabled=True)


@function_tool
def get_weather(city: str) -> str:
    """Degrees in a city."""
    return "21"


for number, api in ((601, "responses"), (602, "chat_completions")):
    set_default_openai_api(api)
    agent = Agent(name="Weather", instructions="Be brief.", model="default", tools=[get_weather])
    result = Runner.run_sync(agent, f"weather mk{number}x")
    assert f"fin{number}x" in result.final_output, result
