import path from "node:path";
import { fileURLToPath } from "node:url";
import { Client } from "../../extensions/memory-supaclaw/client.js";

const STATE = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..");
const client = new Client(path.join(STATE, "supaclaw"));

export default async function handler({ type, action, sessionKey, timestamp, context = {} }) {
  try {
    if (type !== "message") return client.end(sessionKey);
    const { content, messageId, channelId, success } = context;
    if (!content || content.startsWith("/") || success === false) return;
    const at = new Date(timestamp ?? Date.now()).toISOString();
    const id = messageId ? { external_id: `${channelId}:${action}:${messageId}` } : {};
    client.say(sessionKey, [{ role: action === "sent" ? "assistant" : "user", text: content, at, ...id }]);
  } catch (error) {
    console.warn(`supaclaw-logger: ${error.message}`);
  }
}
