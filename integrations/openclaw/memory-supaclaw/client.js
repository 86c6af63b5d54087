// The connection to the SupaClaw gateway, and the spool for what it could not be told yet.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const TIMEOUT_MS = 2000;
const RETRY_MS = 30_000;
const BATCH = 50;
const PERMANENT = new Set([400, 404, 409, 413, 415, 422]);

export function stateFolder() {
  return process.env.OPENCLAW_STATE_DIR || path.join(os.homedir(), ".openclaw");
}

// <state>/supaclaw: `connection.json` (0600), `keys.json` and `spool/`. Read at each use, so that a new token needs no restart.
export class Client {
  #folder;
  #log;
  #flushing = null;
  #again = false;
  #timer = null;
  #count = 0;

  constructor(folder, log = () => {}) {
    this.#folder = folder;
    this.#log = log;
  }

  // The answer's JSON; throws within two seconds, whatever the gateway does.
  async request(method, route, body) {
    const { url, token } = JSON.parse(fs.readFileSync(path.join(this.#folder, "connection.json"), "utf8"));
    const answer = await fetch(url + route, {
      method,
      redirect: "error",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (!answer.ok) throw Object.assign(new Error(`SupaClaw answers ${answer.status}`), { status: answer.status });
    return await answer.json();
  }

  // --- conversations: one external key from /new to /new, also where OpenClaw keeps its session id ---

  say(sessionKey, messages) {
    if (!sessionKey || messages.length === 0) return;
    const keys = this.#keys();
    keys[sessionKey] ??= `${sessionKey}@${new Date().toISOString()}`;
    this.#keep(keys);
    this.#spool({ external_key: keys[sessionKey], messages });
  }

  // Has a session summarised that has been logged; a second call finds nothing to end.
  end(sessionKey) {
    const keys = this.#keys();
    if (!keys[sessionKey]) return;
    this.#spool({ external_key: keys[sessionKey], end: true });
    delete keys[sessionKey];
    this.#keep(keys);
  }

  #keys() {
    try {
      return JSON.parse(fs.readFileSync(path.join(this.#folder, "keys.json"), "utf8"));
    } catch {
      return {};
    }
  }

  #keep(keys) {
    this.#write("keys.json", JSON.stringify(keys));
  }

  // --- the spool: a file for each entry, in the order of their names, deleted once the gateway has it ---

  #spool(session) {
    const place = `${String(Date.now()).padStart(15, "0")}-${process.pid}-${String(this.#count++).padStart(9, "0")}.json`;
    this.#write(path.join("spool", place), JSON.stringify(session));
    void this.flush();
  }

  #write(name, text) {
    const file = path.join(this.#folder, name);
    fs.mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    fs.writeFileSync(`${file}.new`, text, { mode: 0o600 });
    fs.renameSync(`${file}.new`, file);
  }

  // Never throws. Sends what waits, oldest first; what cannot be sent now is tried again every 30 seconds.
  flush() {
    this.#again = true;
    this.#flushing ??= this.#run().finally(() => (this.#flushing = null));
    return this.#flushing;
  }

  async #run() {
    try {
      while (this.#again) {
        this.#again = false;
        await this.#sendAll();
      }
    } catch (error) {
      this.#later(error);
    }
  }

  async #sendAll() {
    for (;;) {
      const folder = path.join(this.#folder, "spool");
      const names = fs.existsSync(folder) ? fs.readdirSync(folder).filter((name) => name.endsWith(".json")).sort() : [];
      if (names.length === 0) return;
      let files = names.slice(0, BATCH).map((name) => path.join(folder, name));
      try {
        await this.#post(files);
      } catch (error) {
        if (!PERMANENT.has(error.status)) throw error;
        files = files.slice(0, 1); // one of them is refused: send the oldest alone
        await this.#post(files).catch((refused) => this.#setAside(files[0], refused));
      }
      for (const file of files) fs.rmSync(file, { force: true });
    }
  }

  #post(files) {
    const sessions = files.flatMap((file) => {
      try {
        return [JSON.parse(fs.readFileSync(file, "utf8"))];
      } catch {
        return []; // another process has sent it meanwhile
      }
    });
    return sessions.length ? this.request("POST", "/api/log", { sessions, skip: ["HEARTBEAT_OK*", "NO_REPLY"], remember: true }) : null;
  }

  #setAside(file, error) {
    if (!PERMANENT.has(error.status)) throw error;
    this.#log(`memory-supaclaw: ${file} is refused (${error.message}); kept as ${file}.refused`);
    fs.renameSync(file, `${file}.refused`);
  }

  #later(error) {
    this.#log(`memory-supaclaw: conversations wait until SupaClaw can be reached (${error.message})`);
    if (this.#timer) return;
    this.#timer = setTimeout(() => ((this.#timer = null), void this.flush()), RETRY_MS);
    this.#timer.unref();
  }
}
