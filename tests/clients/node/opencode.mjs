// opencode: a coding agent reads a file with its own tool.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const home = mkdtempSync(join(tmpdir(), "opencode-"));
const options = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };
const claw = { npm: "@ai-sdk/openai-compatible", name: "claw", options, models: { default: { name: "claw" } } };
const config = { model: "claw/default", small_model: "claw/default", autoupdate: false, share: "disabled" };
writeFileSync(join(home, "opencode.json"), JSON.stringify({ ...config, provider: { claw } }));
writeFileSync(join(home, "note.txt"), "the word is tulip\n");
const { OPENAI_API_KEY: _key, OPENAI_BASE_URL: _url, ...inherited } = process.env;
const env = { ...inherited, HOME: home, XDG_CONFIG_HOME: home, XDG_DATA_HOME: home, XDG_CACHE_HOME: home };
const command = new URL("opencode", process.env.CLIENTS_BIN).pathname;
const told = execFileSync(command, ["run", "--model", "claw/default", "opencode reads mk954x"], {
  cwd: home,
  // it works where PWD says; its list of other providers' models is not needed, and may be out of reach
  env: { ...env, XDG_STATE_HOME: home, PWD: home, OPENCODE_DISABLE_MODELS_FETCH: "1" },
  encoding: "utf8",
  timeout: 540_000,
  stdio: ["ignore", "pipe", "inherit"],
});
assert.match(told, /fin954x/);
