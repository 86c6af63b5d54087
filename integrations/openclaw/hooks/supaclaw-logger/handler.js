import path from "node:path";
import { Client, stateFolder } from "./client.js";

const client = new Client(path.join(stateFolder(), "supaclaw"));

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
