// OpenClaw's memory slot, served by a SupaClaw gateway. Nothing here throws into OpenClaw: without the gateway a search
// says so, a prompt has no context of earlier sessions, and the log waits in the spool.
import path from "node:path";
import { Client, stateFolder } from "./client.js";
import { Conversations } from "./conversations.js";

const ENDS = new Set(["new", "reset", "idle", "daily", "deleted"]);
const CATEGORIES = ["preference", "decision", "fact", "context", "project", "person", "correction"];
const PROMPT = [
  "## Memory (SupaClaw)",
  "Conversations are logged to a long-term memory. Before you answer about earlier work, people, preferences, decisions or dates,",
  "call memory_search (through tool_search if it isn't listed). Keep what must last with memory_remember.",
];
const FLUSH = {
  softThresholdTokens: 4000,
  forceFlushTranscriptBytes: 2 * 1024 * 1024,
  reserveTokensFloor: 20_000,
  systemPrompt: "The conversation is about to be compacted. Keep in memory what would be lost; the user isn't asked.",
  prompt: "Keep what must last with memory_remember, one sentence each. Write nothing that is kept already. Reply NO_REPLY.",
};

export default {
  id: "memory-supaclaw",
  name: "SupaClaw Memory",
  kind: "memory",
  register(api) {
    const warn = (text) => (api.logger?.warn ?? console.warn)(text);
    // not beside this file: OpenClaw runs a copy of it elsewhere
    const state = api.runtime?.state?.resolveStateDir?.(process.env) ?? stateFolder();
    const isIncognito = (sessionKey) => api.runtime?.agent?.session?.getSessionEntry?.({ sessionKey })?.incognito === true;
    const { client, conversations } = shared(path.join(state, "supaclaw"), warn, isIncognito);
    api.registerMemoryCapability({
      promptBuilder: () => PROMPT,
      flushPlanResolver: ({ nowMs } = {}) => ({
        ...FLUSH,
        relativePath: `memory/${new Date(nowMs ?? Date.now()).toISOString().slice(0, 10)}.md`,
      }),
      runtime: {
        getMemorySearchManager: async () => ({ manager: manager(client) }),
        resolveMemoryBackendConfig: () => ({ backend: "builtin" }),
        closeAllMemorySearchManagers: async () => {},
      },
    });
    for (const tool of tools(client)) api.registerTool(tool, { name: tool.name });
    hooks(api, client, conversations, warn);
  },
};

// OpenClaw registers a plugin several times in one process, and its hooks may come by any of these.
function shared(folder, warn, isIncognito) {
  const all = (globalThis[Symbol.for("memory-supaclaw")] ??= new Map());
  if (!all.has(folder)) {
    const client = new Client(folder, warn);
    all.set(folder, { client, conversations: new Conversations(client, isIncognito) });
  }
  return all.get(folder);
}

function hooks(api, client, conversations, warn) {
  const { log = true, bootstrap = true } = api.pluginConfig ?? {};
  const on = (name, handler) =>
    api.on(name, async (event, context) => {
      try {
        return await handler(event ?? {}, context ?? {});
      } catch (error) {
        warn(`memory-supaclaw: ${name}: ${error.message}`);
      }
    });
  on("gateway_start", () => void client.flush());
  if (bootstrap) {
    on("before_prompt_build", async (event, context) => {
      conversations.began(event, context);
      const text = await conversations.context(context);
      return text ? { appendSystemContext: text } : undefined;
    });
  } else on("before_prompt_build", (event, context) => void conversations.began(event, context));
  if (!log) return;
  on("message_received", (event, context) => conversations.received(event, context));
  on("agent_end", (event, context) => conversations.answered(event, context));
  on("before_reset", (_event, context) => conversations.ended(context.sessionKey));
  on("session_end", (event, context) => ENDS.has(event.reason) && conversations.ended(event.sessionKey ?? context.sessionKey));
}

// --- tools ---

function tools(client) {
  const text = { type: "string" };
  return [
    tool("memory_search", "Search the long-term memory: facts, preferences, decisions and earlier conversations.", {
      required: ["query"],
      properties: { query: text, maxResults: { type: "number", minimum: 1, maximum: 50 } },
      run: async ({ query, maxResults }) => ({ results: await search(client, query, maxResults), provider: "supaclaw" }),
    }),
    tool("memory_get", "Read one result of memory_search in full, by its path.", {
      required: ["path"],
      properties: { path: text, from: { type: "number" }, lines: { type: "number" } },
      run: (params) => read(client, params.path, params.from, params.lines),
    }),
    tool("memory_remember", "Keep one lasting fact, preference or decision, as a sentence that makes sense on its own.", {
      required: ["text"],
      properties: { text, category: { type: "string", enum: CATEGORIES }, importance: { type: "number", minimum: 0, maximum: 1 } },
      run: async ({ text: said, category = "context", importance = 0.5 }) => {
        const { memory, new: isNew } = await client.request("POST", "/api/memory", { text: said, category, importance });
        return { status: isNew ? "stored" : "already known", path: `supaclaw/${memory.id}` };
      },
    }),
  ];
}

function tool(name, description, { required, properties, run }) {
  return {
    name,
    label: name,
    description,
    parameters: { type: "object", additionalProperties: false, required, properties },
    async execute(_id, params) {
      let details;
      try {
        details = await run(params ?? {});
      } catch (error) {
        details = { disabled: true, unavailable: true, error: `the memory cannot be reached now: ${error.message}` };
      }
      return { content: [{ type: "text", text: JSON.stringify(details) }], details };
    },
  };
}

async function search(client, query, maxResults = 6, minScore = 0) {
  const { hits } = await client.request("POST", "/api/memory/search", { query, max_results: Math.round(maxResults) });
  return hits
    .filter((hit) => hit.score >= minScore)
    .map(({ memory, score }) => ({
      path: `supaclaw/${memory.id}`,
      startLine: 1,
      endLine: memory.text.split("\n").length,
      score,
      snippet: `[${memory.category ?? memory.kind}] ${memory.text}`.slice(0, 700),
      source: "memory",
    }));
}

async function read(client, place, from = 1, lines = 2000) {
  const id = String(place ?? "").replace(/^supaclaw\//, "");
  if (!/^[\w-]{1,64}$/.test(id)) return { status: "not_found", path: place, text: "" };
  try {
    const { memory } = await client.request("GET", `/api/memory/${id}`);
    const all = memory.text.split("\n");
    return { status: "ok", path: place, text: all.slice(from - 1, from - 1 + lines).join("\n"), from, lines: all.length };
  } catch (error) {
    if (error.status === 404 || error.status === 422) return { status: "not_found", path: place, text: "" };
    throw error;
  }
}

function manager(client) {
  const reachable = async () => {
    try {
      await client.request("POST", "/api/memory/search", { query: "memory", max_results: 1 });
      return { ok: true, checked: true };
    } catch (error) {
      return { ok: false, checked: true, error: error.message };
    }
  };
  return {
    search: (query, { maxResults, minScore } = {}) => search(client, query, maxResults, minScore),
    readFile: ({ relPath, from, lines }) => read(client, relPath, from, lines),
    status: () => ({ backend: "builtin", provider: "supaclaw", dirty: false }),
    sync: async () => void (await client.flush()),
    probeEmbeddingAvailability: reachable,
    probeVectorAvailability: async () => (await reachable()).ok,
    close: async () => {},
  };
}
