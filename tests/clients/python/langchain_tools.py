"""LangChain: a bound tool and a structured answer."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


@tool
def get_weather(city: str) -> str:
    """Degrees in a city."""
    return "21"


class Place(BaseModel):
    """A place."""

    city: str
    degrees: int


model = ChatOpenAI(model="default")
bound = model.bind_tools([get_weather])
asked = HumanMessage("weather mk201x")
first = bound.invoke([asked])
[call] = first.tool_calls
second = bound.invoke([asked, first, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])])
assert "fin201x" in second.text, second
assert model.with_structured_output(Place).invoke("as json") == Place(city="Rome", degrees=21)
assert "fin202x" in "".join(chunk.text for chunk in model.stream("hello mk202x"))
