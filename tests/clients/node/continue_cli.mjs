// Continue: its command line, a coding agent, reads a file with its own tool.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const home = mkdtempSync(join(tmpdir(), "continue-"));
const { OPENAI_API_KEY, OPENAI_BASE_URL, ...inherited } = process.env;
const model = ["name: claw", "provider: openai", "model: default", `apiBase: ${OPENAI_BASE_URL}`];
const lines = ["name: claw", "version: 1.0.0", "schema: v1", "models:", `  - ${model.join("\n    ")}`];
writeFileSync(join(home, "config.yaml"), [...lines, `    apiKey: ${OPENAI_API_KEY}`, ""].join("\n"));
writeFileSync(join(home, "note.txt"), "the word is tulip\n");
const command = new URL("cn", process.env.CLIENTS_BIN).pathname;
const told = execFileSync(command, ["--config", join(home, "config.yaml"), "-p", "continue reads mk953x"], {
  cwd: home,
  env: { ...inherited, HOME: home, CONTINUE_GLOBAL_DIR: join(home, ".continue"), CONTINUE_TELEMETRY_ENABLED: "0" },
  encoding: "utf8",
  timeout: 540_000,
  stdio: ["ignore", "pipe", "inherit"],
});
assert.match(told, /fin953x/);
