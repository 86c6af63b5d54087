"""LlamaIndex: a tool by its function-calling interface."""

import os

from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


def get_weather(city: str) -> str:
    """Degrees in a city."""
    return "21"


model = OpenAILike(
    model="default",
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    is_chat_model=True,
    is_function_calling_model=True,
)
answer = model.chat_with_tools([FunctionTool.from_defaults(fn=get_weather)], user_msg="weather mk301x")
[call] = model.get_tool_calls_from_response(answer)
assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Rome"})
assert "fin302x" in model.complete("hello mk302x").text
