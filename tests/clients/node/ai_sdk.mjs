// AI SDK: tools and streams over Responses (its default), chat completions and the compatible provider.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const at = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };
const openai = createOpenAI(at);
const models = [openai("default"), openai.chat("default"), createOpenAICompatible({ name: "claw", ...at })("default")];
for (const [at, model] of models.entries()) {
  const asked = [];
  const tools = {
    get_weather: tool({
      description: "Degrees in a city",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => (asked.push(city), "21"),
    }),
  };
  const { text } = await generateText({ model, tools, prompt: `weather mk90${at}x`, stopWhen: stepCountIs(3) });
  assert.match(text, new RegExp(`fin90${at}x`));
  assert.deepEqual(asked, ["Rome"]);
  const streamed = await streamText({ model, prompt: `hello mk91${at}x` }).text;
  assert.match(streamed, new RegExp(`fin91${at}x`));
}
