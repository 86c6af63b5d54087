"""openai-python: chat completions with a tool, parsed answers, Responses with a stream, old completions."""

from openai import OpenAI
from pydantic import BaseModel

client = OpenAI()
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Place(BaseModel):
    city: str
    degrees: int


tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
messages = [{"role": "user", "content": "weather mk101x"}]
first = client.chat.completions.create(
    model="default", messages=messages, tools=tools, stop=["."], user="ada", extra_body={"top_k": 5}
)
[call] = first.choices[0].message.tool_calls
messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "21"}]
second = client.chat.completions.create(model="default", messages=messages, tools=tools)
assert "fin101x" in second.choices[0].message.content, second
assert second._request_id.startswith("req_")

parsed = client.chat.completions.parse(
    model="default", messages=[{"role": "user", "content": "as json"}], response_format=Place
)
assert parsed.choices[0].message.parsed == Place(city="Rome", degrees=21)
assert client.responses.parse(model="default", input="as json", text_format=Place).output_parsed.city == "Rome"

one = client.responses.create(model="default", input="hello mk102x")
with client.responses.stream(model="default", input="hello mk103x", previous_response_id=one.id) as stream:
    events = [event.type for event in stream]
    assert "fin103x" in stream.get_final_response().output_text
assert "response.output_text.delta" in events
assert "fin104x" in client.completions.create(model="default", prompt="hello mk104x").choices[0].text
