// openai-node: a tool over chat completions, a stream over Responses.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI();
const parameters = { type: "object", properties: { city: { type: "string" } } };
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
const asked = { role: "user", content: "weather mk801x" };
const first = await client.chat.completions.create({ model: "default", messages: [asked], tools });
const said = first.choices[0].message;
const result = { role: "tool", tool_call_id: said.tool_calls[0].id, content: "21" };
const second = await client.chat.completions.create({ model: "default", messages: [asked, said, result], tools });
assert.match(second.choices[0].message.content, /fin801x/);

let text = "";
for await (const event of await client.responses.create({ model: "default", input: "hello mk802x", stream: true })) {
  if (event.type === "response.output_text.delta") text += event.delta;
}
assert.match(text, /fin802x/);
