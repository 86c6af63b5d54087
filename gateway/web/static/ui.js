// The page is rendered by the server; this applies its patches, keeps the connection, and runs the composer.
const $ = (selector, root = document) => root.querySelector(selector);
const by = id => document.getElementById(id);
const signIn = () => {                                              // what a reload loses stays, for a sign-in in another tab
  if (files.some(file => !file.id) || [...document.querySelectorAll("form[method=post]:not(#composer)")].some(edited)) {
    say("You are signed out. Sign in in another tab; what you typed here stays.");
    return stream && setTimeout(again, 3000);
  }
  sessionStorage.setItem("supaclaw.back", location.pathname + location.search); location.assign("/login");
};

// ---- theme: the system's, light or dark, kept in a cookie so that the server renders it without a flash
$("[data-theme-toggle]")?.addEventListener("click", () => {
  const order = ["", "light", "dark"], root = document.documentElement;
  const next = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  document.cookie = `claw-theme=${next};path=/;max-age=${next ? 31536000 : 0};samesite=strict`;
  say(`Theme: ${next || "like the system"}`);
});

// ---- the sidebar, on every page: what waits in the inbox, also in the tab's title, and the chats
const bare = document.title, chats = by("chats");
let isWell = true;
function showConnection() {
  const shown = by("connection"), on = shown?.dataset.state === "on";
  const says = !on ? "Reconnecting…" : isWell ? "Live" : '<a href="/checks">Needs a look</a>';
  if (shown) shown.dataset.well = isWell;
  if (shown && shown.innerHTML !== says) shown.innerHTML = says;      // it may have the focus
}
async function showSide() {
  try {
    if (document.hidden || by("connection")?.dataset.state === "off") return;
    const today = new Date(new Date().setHours(0, 0, 0, 0)).toISOString();
    const [waits, listed] = await Promise.all([fetch("/inbox/waiting"), fetch(`/c/side?since=${today}`)]);
    if (!waits.ok || !listed.ok) return;
    const { waiting, well } = await waits.json(), badge = by("waiting");
    document.title = waiting ? `(${waiting}) ${bare}` : bare;
    badge.hidden = !waiting; badge.textContent = waiting; by("unwell").hidden = isWell = well;
    showConnection();
    showChats(await listed.text());
  } catch { /* the connection tells */ }
}
function showChats(html) {
  if (html === sessionStorage.getItem("supaclaw.chats") && chats.childElementCount || chats.contains(document.activeElement)) return;
  sessionStorage.setItem("supaclaw.chats", html);                    // so that the next page has them at once
  chats.replaceChildren(element(html));
  const here = [...chats.querySelectorAll("a")].find(link => link.pathname === location.pathname);
  here?.setAttribute("aria-current", "page");
  if (here && by("title")) by("title").textContent = here.firstChild.textContent;
}
document.addEventListener("submit", ({ target }) => { if (target.matches(".leave")) sessionStorage.clear() });

// ---- patches: [what, where, html]
const element = html => { const t = document.createElement("template"); t.innerHTML = html; localise(t.content); return t.content };
const localise = root => root.querySelectorAll("time").forEach(time => {
  const at = new Date(time.dateTime);
  time.textContent = at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  time.title = at.toLocaleString([], { dateStyle: "full", timeStyle: "long" });   // with the zone
});
localise(document);
if (chats) {
  showChats(sessionStorage.getItem("supaclaw.chats") ?? "");
  showSide(); setInterval(showSide, 10000);
  document.addEventListener("visibilitychange", showSide);
}
const keepOpen = (old, fresh) => {
  const open = new Set([...old.querySelectorAll("details[open]"), ...(old.open ? [old] : [])].map(d => d.id));
  for (const details of fresh.querySelectorAll("details")) if (open.has(details.id)) {
    details.open = true;
    if (details.dataset.load) details.lastElementChild.replaceChildren(...by(details.id).lastElementChild.childNodes);
  }
};
const patch = {
  replace(id, html) { const old = by(id); if (!old) return; const fresh = element(html); keepOpen(old, fresh); old.replaceWith(fresh) },
  insert(after, html) { by(after || "empty")?.after(element(html)) },
  remove(id) { by(id)?.remove() },
  append(id, html) { by(id)?.append(element(html)) },
  fill(id, html) {
    const old = by(id); if (!old) return;
    const fresh = element(html); keepOpen(old, fresh);
    for (const child of [...fresh.children]) {                     // what did not change keeps its node, and its selection
      const same = child.id && by(child.id);
      if (same && same.isEqualNode(child)) child.replaceWith(same);
    }
    old.replaceChildren(fresh);
  },
  running(now) {
    if (form && form.dataset.running !== `${now}`) { form.dataset.running = now; showSide() }
    if (by("stop")) { by("stop").hidden = !now; by("send").hidden = now && !box.value.trim() && !files.length }
    by("thread")?.setAttribute("aria-busy", now);
  },
};

// ---- what is pressed stays until it is let go: a browser clicks only what was there from the press to the release
const waiting = [];
let pressed = false, releasing = 0;
const unpressed = act => pressed ? waiting.push(act) : act();
const released = () => { pressed = false; releasing = 0; waiting.splice(0).forEach(act => act()) };
const release = () => releasing ||= setTimeout(released, 50);           // a tap's click comes after it
addEventListener("pointerdown", event => {
  clearTimeout(releasing); releasing = 0;
  pressed ||= event.isPrimary && !event.button;
}, true);
for (const over of ["pointerup", "pointercancel"]) addEventListener(over, release, true);
addEventListener("pointermove", event => { if (pressed && !event.buttons) release() }, true);
addEventListener("blur", release);

// ---- scrolling: sticks to the end until the reader scrolls up
const chat = by("chat"), newer = by("newer"), scroller = chat ?? $(".boards");
let spot = history.state?.spot, stuck = spot === undefined;           // Back and reload find the place again
const toSpot = () => { if (spot !== undefined) scroller.scrollTop = spot };
addEventListener("pagehide", () => scroller && history.replaceState(chat && stuck ? null : { spot: scroller.scrollTop }, ""));
if (scroller) toSpot();
const atEnd = () => chat.scrollHeight - chat.scrollTop - chat.clientHeight < 60;
const toEnd = () => { stuck = true; newer.hidden = true; chat.scrollTop = chat.scrollHeight };
chat?.addEventListener("scroll", () => { stuck = atEnd(); if (stuck) newer.hidden = true }, { passive: true });
$("button", newer ?? document.createElement("i"))?.addEventListener("click", toEnd);
if (chat) new ResizeObserver(() => stuck && toEnd()).observe(by("thread"));

// ---- the connection: resumes where it was, or gets the whole again
const stream = $("[data-stream]");
const isBoard = stream?.matches(".boards");                        // a chat costs nothing until something is said
let source, last = "", latest = "", heard = Date.now();
function apply(patches) {
  for (const [what, ...where] of patches) patch[what](...where);
  if (spot !== undefined) { toSpot(); spot = undefined }
  else if (chat && stuck) toEnd(); else if (chat) newer.hidden = false;
  if (by("chosen") && patches.some(([, , html]) => /class="command">\/(model|think)/.test(html))) showChosen();
}
function connect() {
  source?.close(); source = undefined;
  if (isBoard && document.hidden) return;                            // the gateway reads nothing for a hidden tab
  source = new EventSource(stream.dataset.stream + (last ? `${stream.dataset.stream.includes("?") ? "&" : "?"}after=${encodeURIComponent(last)}` : ""));
  source.onopen = () => online(true);
  source.onmessage = event => {
    last = event.lastEventId; heard = Date.now();
    if (isBoard && event.data === latest) return;                    // the whole again, and nothing has changed
    latest = event.data;
    unpressed(() => apply(JSON.parse(event.data)));
  };
  source.onerror = () => { online(false); source.close(); setTimeout(again, 500) };      // signed out, perhaps
}
async function again() {                                            // a gateway that starts knows nobody yet
  const { signed_in: known } = await fetch("/login/state").then(answer => answer.json()).catch(() => ({}));
  if (known) connect(); else if (known === false) signIn(); else setTimeout(again, 1500);
}
function online(now) {
  by("connection").dataset.state = now ? "on" : "off"; showConnection();
  if (now) deliver();
}
const isLate = () => !document.hidden && Date.now() - heard > 30000;
document.addEventListener("visibilitychange", () => { if (stream && (isBoard || isLate())) connect() });
addEventListener("online", () => stream && connect());
addEventListener("offline", () => stream && online(false));

// ---- the composer: what was typed, and what could not be sent yet, survive a reload
const form = by("composer"), box = by("text");
const place = form?.dataset.chat ?? "";
const mine = () => form?.dataset.fresh === undefined ? place && `.${place}` : place.startsWith("temporary") ? ".temporary" : ".new";
const key = name => `supaclaw.${name}${name === "unsent" ? "" : mine()}`;
const stored = name => JSON.parse(localStorage.getItem(key(name)) ?? "[]");
const store = (name, text) => {
  try { if (text) localStorage.setItem(key(name), text); else localStorage.removeItem(key(name)) } catch { /* full: it stays on this page alone */ }
};
let unsent = stored("unsent"), delivering = false;
const keep = change => {                                            // another tab may have changed it meanwhile
  const known = new Set(unsent.map(m => m.id));
  unsent = change([...unsent, ...stored("unsent").filter(m => !known.has(m.id))]);
  store("unsent", JSON.stringify(unsent)); showUnsent();
};
const showUnsent = () => by("unsent").replaceChildren(...unsent.filter(m => m.late && (m.chat ?? "") === place).map(m => Object.assign(
  document.createElement("div"), { className: "message user waiting", textContent: [m.text, ...(m.files ?? []).map(f => f.name)].join("\n").trim() })));

function submit(text, files) {                                      // no list of files: a button says it
  if (!text.trim() && !files?.length) return;
  enqueue({ text, typed: !!files, files: (files ?? []).map(({ id, name, size }) => ({ id, name, size })) });
}
function enqueue(message) {
  const sent = { id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, chat: place, ...message };
  keep(all => [...all, sent]); toEnd(); deliver();
}
function takeBack({ text, typed, files: attached }) {               // refused words are not lost
  if (!typed) return;
  box.value = [text, box.value].filter(words => words.trim()).join("\n\n");
  files = [...attached, ...files]; showFiles(); changed();
}
async function deliver() {                                          // in order; a repeat carries the same id
  if (delivering || !form) return;
  delivering = true;
  while (unsent.length) {
    const message = unsent[0];
    try {
      const body = new URLSearchParams({ text: message.text, client_id: message.id, ...(message.again && { again: message.again }), ...(message.chat && { chat: message.chat }) });
      for (const file of message.files ?? []) body.append("files", file.id);
      const answer = await fetch(form.action, { method: "POST", body });
      if (answer.status === 401) { signIn(); break }
      if (answer.status >= 500 || answer.status === 429) throw answer;
      const said = await answer.json(), taken = answer.ok && said.kind !== "ignored";
      keep(all => all.filter(m => m.id !== message.id));
      if (!taken) { say(answer.ok ? `Not sent: ${said.reason}. Type / to see the commands.` : said.error.message); takeBack(message) }
      if (taken && message.chat === place && form.dataset.fresh !== undefined) {     // from now on it has an address
        for (const name of ["draft", "files"]) localStorage.removeItem(key(name));
        delete form.dataset.fresh; history.replaceState(null, "", `/c/${place}`); changed(); showFiles();
      }
      showSide();
    } catch {
      keep(all => all.map(m => ({ ...m, late: true })));
      setTimeout(deliver, 2000);
      break;
    }
  }
  delivering = false;
}

// ---- files: uploaded as soon as they are chosen, one after another; those that arrived survive a reload
let files = stored("files"), uploads = Promise.resolve(), held = false, editing = "", before = "", asked = "";
const underWay = file => !file.id && !file.problem;
const size = bytes => bytes < 1000 ? `${bytes} B` : bytes < 999500 ? `${(bytes / 1e3).toFixed(bytes < 9950 ? 1 : 0)} kB` : `${(bytes / 1e6).toFixed(bytes < 9.95e6 ? 1 : 0)} MB`;

function attach(chosen) {
  for (const blob of chosen) {
    if (files.length >= Number(form.dataset.most)) { say(`A message may have ${form.dataset.most} files.`); break }
    const file = { name: blob.name || "picture.png", size: blob.size, blob, done: 0 };
    files.push(file);
    uploads = uploads.then(() => upload(file));
  }
  showFiles(); box.focus();
}
const upload = file => new Promise(over => {
  if (!files.includes(file)) return over();
  const sending = file.sending = new XMLHttpRequest(), body = new FormData();
  body.append("file", file.blob, file.name);
  sending.upload.onprogress = event => { file.done = event.loaded / event.total; showProgress(file) };
  sending.onloadend = () => {
    const { status, response: answer } = sending;
    delete file.sending;
    if (status === 401) signIn();
    if (status === 201) Object.assign(file, { id: answer.id, name: answer.name, size: answer.size, blob: undefined });
    else file.problem = answer?.error?.message ?? "The connection was lost.";
    file.lost = !status || status === 401 || status >= 500;
    if (file.problem && files.includes(file)) say(`${file.name} was not uploaded.`);
    over(); unpressed(showFiles);
    if (held && !files.some(underWay)) { held = false; if (!files.some(f => f.problem)) form.requestSubmit() }
  };
  sending.open("POST", "/chat/files"); sending.responseType = "json"; sending.send(body);
});
function remove(file) {
  const place = files.indexOf(file);
  files.splice(place, 1); file.sending?.abort(); showFiles();
  ($(`li:nth-child(${Math.min(place + 1, files.length)}) [data-remove]`, by("files")) ?? box).focus();
}
function retry(file) { delete file.problem; file.done = 0; uploads = uploads.then(() => upload(file)); showFiles() }
function showProgress(file) {
  const bar = file.shown && $("progress", file.shown);
  if (bar) bar.value = file.done;
}
function showFiles() {
  store("files", JSON.stringify(files.filter(f => f.id).map(({ id, name, size }) => ({ id, name, size }))));
  by("files").hidden = !files.length;
  by("files").replaceChildren(...files.map(file => {
    const li = file.shown = by("file").content.firstElementChild.cloneNode(true), [bar, again, gone] = ["progress", "[data-again]", "[data-remove]"].map(s => $(s, li));
    $(".name", li).textContent = $(".name", li).title = file.name;
    $("small", li).textContent = file.problem ?? size(file.size);
    li.classList.toggle("failed", !!file.problem);
    if (/\.(png|jpe?g|gif|webp|heic)$/i.test(file.name)) { const use = $("use", li); use.setAttribute("href", use.getAttribute("href").replace("#file", "#image")) }
    bar.hidden = !underWay(file); bar.value = file.done ?? 0; bar.ariaLabel = `Uploading ${file.name}`;
    again.hidden = !file.problem || !file.lost; again.onclick = () => retry(file);
    gone.ariaLabel = gone.title = `Remove ${file.name}`; gone.onclick = () => remove(file);
    return li;
  }));
  patch.running(form.dataset.running === "true");
}

let quiet;
function say(text) {
  const toast = by("toast"); if (!toast) return;
  toast.textContent = text; toast.hidden = false;
  clearTimeout(quiet); quiet = setTimeout(() => toast.hidden = true, 6000);
}

// ---- slash commands: a list that narrows while one is typed
const list = by("commands");
let chosen = 0;
const matching = () => /^\/\S*$/.test(box.value) ? [...list.children].filter(li => li.dataset.name.startsWith(box.value.slice(1))) : [];
function suggest() {
  const found = matching();
  chosen = Math.max(0, Math.min(chosen, found.length - 1));
  for (const li of list.children) li.hidden = !found.includes(li);
  found.forEach((li, at) => { li.setAttribute("aria-selected", at === chosen); if (at === chosen) li.scrollIntoView({ block: "nearest" }) });
  list.hidden = !found.length;
  if (list.hidden) box.removeAttribute("aria-activedescendant"); else box.setAttribute("aria-activedescendant", found[chosen].id);
}
function complete(name) { box.value = `/${name} `; changed(); box.focus() }
function changed() {
  if (editing) store("edit", JSON.stringify([editing, box.value])); else store("draft", box.value);
  suggest();
  patch.running(form.dataset.running === "true");
}

if (form) {
  const given = new URLSearchParams(location.search).get("text");      // an address may fill it in, and never sends it
  if (given) history.replaceState(null, "", location.pathname);
  box.value = given ?? localStorage.getItem(key("draft")) ?? "";
  if (given) suggest();                                                // nor takes the place of a draft
  else if (stored("edit").length) { before = box.value; [editing, box.value] = stored("edit"); by("editing").hidden = false }
  if (!given) changed();
  showFiles(); showUnsent(); deliver();
  box.addEventListener("input", () => { chosen = 0; changed() });
  box.addEventListener("keydown", event => {
    const found = matching(), arrow = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.isComposing) return;
    if (found.length && arrow) { event.preventDefault(); chosen = (chosen + arrow + found.length) % found.length; suggest() }
    else if (found.length && event.key === "Tab") { event.preventDefault(); complete(found[chosen].dataset.name) }
    else if (found.length && event.key === "Escape") { list.hidden = true; event.preventDefault() }
    else if (event.key === "Enter" && !event.shiftKey && (enterSends() || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (found.length && !list.hidden && box.value !== `/${found[chosen].dataset.name}`) complete(found[chosen].dataset.name);
      else form.requestSubmit();
    }
  });
  form.addEventListener("submit", event => {
    event.preventDefault();
    const typed = box.value.trimEnd(), text = editing ? `/edit #${editing} ${typed}` : typed, sent = /^\/\w+(?!\S)/.test(text) ? [] : files;
    if (editing && !branching()) return;
    if (editing && files.length) return say("The message keeps its files; remove the new ones, or send them afterwards.");
    if (editing && !typed) return box.focus();
    if (sent.some(file => file.problem)) return say("Remove the file that was not uploaded, or try it again.");
    if (held = sent.some(underWay)) return say("Your message goes out as soon as its files are uploaded.");
    by("toast").hidden = true;
    box.value = ""; files = files.filter(file => !sent.includes(file));
    if (editing) cancelEdit();
    changed(); showFiles(); submit(text, sent); box.focus();
  });
  by("attach").addEventListener("click", () => by("pick").click());
  by("pick").addEventListener("change", event => { attach([...event.target.files]); event.target.value = "" });
  box.addEventListener("paste", event => {
    const { files: pasted, types } = event.clipboardData;
    if (pasted.length && !types.includes("text/plain")) { event.preventDefault(); attach([...pasted]) }
  });
  const dragged = event => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", event => { if (dragged(event)) { event.preventDefault(); form.classList.add("over") } });
  addEventListener("dragleave", event => { if (!event.relatedTarget) form.classList.remove("over") });
  addEventListener("drop", event => {
    form.classList.remove("over");
    if (dragged(event)) { event.preventDefault(); attach([...event.dataTransfer.files]) }
  });
  list.addEventListener("mousedown", event => { event.preventDefault(); const li = event.target.closest("li"); if (li) complete(li.dataset.name) });
  addEventListener("keydown", event => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) {
      event.preventDefault(); box.focus();
    }
  });
}
// ---- a voice note: recorded here, then sent as any other file; not offered where the browser can't
const speak = by("speak");
let recorder;
async function record() {
  if (editing) return say("The message keeps its files; end the editing first.");
  const sound = await navigator.mediaDevices.getUserMedia({ audio: true }).catch(() => {});
  if (!sound) return say("The browser gives no microphone; allow it for this page in the browser’s settings.");
  const parts = [], [type, ending] = [["audio/webm", "weba"], ["audio/mp4", "m4a"], ["audio/ogg", "ogg"]].find(([type]) => MediaRecorder.isTypeSupported(type));
  recorder = new MediaRecorder(sound, { mimeType: type, audioBitsPerSecond: 48000 });
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.onstop = () => {
    sound.getTracks().forEach(track => track.stop()); showRecording(false);
    if (recorder.discarded) return say("The recording was discarded.");
    attach([new File(parts, `voice-note.${ending}`, { type })]); form.requestSubmit();
  };
  recorder.start(); showRecording(true); say("Recording. Press again to send it, Esc to discard it.");
}
function showRecording(on) {
  speak.ariaPressed = on; speak.title = speak.ariaLabel = on ? "Stop and send the voice note" : "Record a voice note";
}
if (speak && window.MediaRecorder && navigator.mediaDevices) {
  speak.hidden = false;
  speak.addEventListener("click", () => recorder?.state === "recording" ? recorder.stop() : record());
  addEventListener("keydown", event => {
    if (event.key !== "Escape" || recorder?.state !== "recording") return;
    event.preventDefault(); recorder.discarded = true; recorder.stop();
  });
}

// ---- branches: an earlier message said otherwise, or answered again
const branching = () => (form.dataset.running !== "true" && !$(".user.waiting", by("thread"))) || (say("Wait for the answer, or stop it first."), false);
async function edit(id) {                                            // "" ends it
  if (id && !branching()) return;
  if (id) {
    const answer = await fetch(`/chat/messages/${id}/text`);
    if (!answer.ok) return say("The message could not be read; try again.");
    if (!editing) before = box.value;
    box.value = await answer.text();
  }
  editing = id; by("editing").hidden = !id; changed(); box.focus();
  if (!id) localStorage.removeItem(key("edit"));
}
function cancelEdit() { box.value = before; before = ""; edit("") }
function retryMessage(id, button) {
  if (!branching()) return;
  const menu = by("retry");
  if (menu.children.length < 2) return submit(`/retry #${id}`);
  asked = id; menu.showPopover(); moveTo(menu, button);
}
function moveTo(menu, button) {
  const { left, bottom, top } = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${bottom + menu.offsetHeight + 8 < innerHeight ? bottom + 4 : Math.max(8, top - menu.offsetHeight - 4)}px`;
  $("button", menu).focus();
}
document.addEventListener("click", event => {
  const button = event.target.closest("[data-edit], [data-retry], [data-model]"), { edit: id, retry, model } = button?.dataset ?? {};
  if (id) edit(id); else if (id === "") cancelEdit();
  if (retry) retryMessage(retry, button);
  if (event.target.closest("#choose [data-say]")) { by("choose").hidePopover(); box.focus() }   // the command is sent as any other
  if (model !== undefined) { by("retry").hidePopover(); submit(`/retry #${asked} ${model}`.trimEnd()); box.focus() }
});
by("choose")?.addEventListener("toggle", event => { if (event.newState === "open") { moveTo(event.target, by("chosen")); showChosen() } });
// ---- the model and thinking of this chat: read from the gateway, since a command or another tab may change them
let ends = 0;
async function showChosen() {
  const answer = await fetch(`/chat/chosen${place && `?chat=${place}`}`).catch(() => {});
  if (answer?.ok) { patch.replace("chosen", await answer.text()); showUntil() }
}
function showUntil() {
  const { until } = by("chosen")?.dataset ?? {}, at = new Date(until), days = at.toDateString() === new Date().toDateString() ? {} : { dateStyle: "medium" };
  clearTimeout(ends);
  if (!until) return;
  by("chosen-until").textContent = at.toLocaleString([], { ...days, timeStyle: "short" });
  ends = setTimeout(showChosen, Math.min(Math.max(at - Date.now() + 500, 2000), 2 ** 31 - 1));
}
showUntil();
by("choose-until")?.addEventListener("change", event => {
  for (const button of by("choose").querySelectorAll("[data-name]")) button.dataset.say = `/model ${button.dataset.name}${event.target.value}`;
});
box?.addEventListener("keydown", event => {
  if (event.key === "Escape" && editing && list.hidden && !event.isComposing) { event.preventDefault(); cancelEdit() }
});
if (stream) connect();

// ---- the browser's time zone, offered while none is known
const offer = by("zone"), zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (offer && zone && zone !== "Etc/Unknown") {
  $("b", offer).textContent = $("button", offer).value = zone;
  offer.hidden = false;
  $("button", offer).dataset.done = `Your times are in ${zone} now.`;
}

// ---- pieces of a page that are fetched: what is found or comes next while it is typed, panels when they are opened
const find = by("find");
let typing, look = 0;
async function ask(url, options, refused = ({ message }) => say(message)) {
  try {
    const answer = await fetch(url, options);
    if (answer.ok) return answer;
    if (answer.status === 401) signIn(); else refused((await answer.json()).error);
  } catch { say("The gateway cannot be reached; try again.") }
}
const piece = async url => { const answer = await ask(url); return answer && element(await answer.text()) };
async function search() {
  const mine = ++look, query = new URLSearchParams([...new FormData(find)].filter(([, value]) => value));
  const screen = find.getAttribute("action"), rows = await piece(`${screen}/rows?${query}`);
  if (!rows || mine !== look) return;                                    // a later one is under way
  history.replaceState(null, "", `${screen}?${query}`);
  by("rows").replaceChildren(rows); count();
}
function count() {
  if (!by("choosing")) return;
  const chosen = document.querySelectorAll(".pick :checked").length;
  by("choosing").hidden = chosen < 2; by("chosen").textContent = `${chosen} chosen`;
}
document.addEventListener("input", ({ target }) => {
  const typed = target.closest("[data-preview]");
  if (!typed) return;
  clearTimeout(typing);
  typing = setTimeout(async () => {
    const query = new URLSearchParams([...typed.querySelectorAll("input, select")].map(field => [field.name, field.value]));
    const mine = ++look, shown = await piece(`${typed.dataset.preview}?${query}`);
    if (shown && mine === look) typed.nextElementSibling.replaceChildren(shown);
  }, 250);
});
find?.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 250) });
find?.addEventListener("submit", event => { event.preventDefault(); clearTimeout(typing); search() });
document.addEventListener("change", event => event.target.form === by("choosing") && find && count());
// ---- the filters of a page that streams: it shows what is typed, but a session's log, which may not exist, is a page
const follow = $("[data-follow]");
function refollow() {
  const query = new URLSearchParams([...new FormData(follow)].filter(([, value]) => value)), [events] = stream.dataset.stream.split("?");
  history.replaceState(null, "", `?${query}`);
  stream.dataset.stream = `${events}?${query}`; last = latest = ""; connect();
}
const wantsPage = () => !stream || edited($(":has(> [name=session])", follow) ?? document.createElement("i"));
follow?.addEventListener("input", () => { clearTimeout(typing); if (!wantsPage()) typing = setTimeout(refollow, 250) });
follow?.addEventListener("change", () => wantsPage() && follow.requestSubmit());
follow?.addEventListener("submit", event => { if (!wantsPage()) { event.preventDefault(); clearTimeout(typing); refollow() } });
async function load(panel, saved = false) {
  const loaded = await piece(panel.dataset.load), now = by(panel.id) ?? panel;
  if (!loaded || (!saved && edited(now))) return;                          // what was typed meanwhile stays
  keepOpen(now.lastElementChild, loaded); now.lastElementChild.replaceChildren(loaded);
}
const edited = root => [...root.querySelectorAll("input, textarea")].some(field => field.value !== field.defaultValue)
  || [...root.querySelectorAll("select:has([selected])")].some(field => !field.selectedOptions[0].defaultSelected);
document.addEventListener("toggle", ({ target }) => {
  if (target.open && target.dataset.load && !edited(target) && !$("[name=since][value='0']", target)) load(target);   // paged stays
  if (target.open) $("[data-preview] select", target)?.dispatchEvent(new Event("input", { bubbles: true }));
}, true);
document.addEventListener("submit", async event => {
  const sent = event.target, into = by(sent.dataset.into);
  if (!into) return;
  event.preventDefault();
  const loaded = await piece(`${sent.getAttribute("action")}?${new URLSearchParams(new FormData(sent, event.submitter))}`);
  if (loaded) { into.replaceChildren(loaded); count(); into.scrollIntoView({ block: "center" }); $("textarea", into)?.focus() }
});

// ---- forms whose effect comes back through the connection, or as the row in its new state
document.addEventListener("submit", async event => {
  const sent = event.target, { quiet, sure, swap, refresh, told, once } = sent.dataset;
  if (quiet === undefined && swap === undefined && told === undefined) { if (sure && !confirm(sure)) event.preventDefault(); return }
  event.preventDefault();
  if (sure && !confirm(sure)) return;
  const button = event.submitter ?? $("button", sent), done = button.dataset.done ?? sent.dataset.done, row = sent.closest(".row"), action = button.getAttribute("formaction") ?? sent.action;
  const fields = new FormData(sent, event.submitter), body = sent.enctype === "multipart/form-data" ? fields : new URLSearchParams(fields), tell = part => $(".told", sent).replaceChildren(part);
  button.disabled = true;                                            // only now: the fields have its value
  if (told !== undefined) tell("Testing…");
  const answer = await ask(action, { method: "POST", body });
  if (told !== undefined) tell(answer ? element(await answer.text()) : "");
  if (answer) {
    by("toast").hidden = true;
    if (swap !== undefined) {
      const fresh = element(await answer.text()), first = $("button", fresh), twin = by(fresh.firstElementChild?.id);
      if (twin !== row) twin?.remove();                                 // such as the receipt of an earlier erasure
      row.replaceWith(fresh); first?.focus(); count(); comeBack();
    }
    const panel = quiet !== undefined && by(sent.closest("[data-load]")?.id);
    if (panel) await load(panel, true);
    if (done) say(done);
    if (once !== undefined) { sent.remove(); box.focus() }
    if (refresh !== undefined) { by("merging")?.replaceChildren(); if (find) search(); else location.reload() }
  }
  button.disabled = false;
});
const comeBack = async () => {                                      // from a restart, which takes out what is waited for
  for (let waits = $("[data-wait]"); waits;) {
    await new Promise(resolve => setTimeout(resolve, 1000));
    const answer = await fetch(location.href).catch(() => {});
    if (answer?.ok) waits = (await answer.text()).includes(" data-wait");
    if (!waits) location.reload();
  }
};
comeBack();
const copied = text => navigator.clipboard.writeText(text).then(     // told in the toast: a streaming answer replaces its buttons
  () => say("Copied."), () => say("The browser did not allow copying; select the text instead."));
document.addEventListener("click", event => {
  const { say: command, copy, fill } = event.target.closest("[data-say], [data-copy], [data-fill]")?.dataset ?? {};
  if (command) submit(command);
  if (event.target.closest("[data-close]")) by("merging").replaceChildren();
  if (fill) { box.value = fill; changed(); box.focus(); if (event.target.dataset.attach !== undefined) by("pick").click() }
  if (copy !== undefined) copied($("code", event.target.closest("figure")).textContent);
});

// ---- tables of data: sorted by the column that is pressed
const sortable = text => { const amount = text.trim(), whole = /^-?\d{1,3}(,\d{3})+(\.\d+)?$/.test(amount); return amount ? Number(whole ? amount.replaceAll(",", "") : amount.replace(",", ".")) : NaN };
document.addEventListener("click", ({ target }) => {
  const head = target.closest("[data-sort]")?.parentElement;
  if (!head) return;
  const sign = head.ariaSort === "ascending" ? -1 : 1, body = head.closest("table").tBodies[0], words = row => row.cells[head.cellIndex].textContent;
  for (const other of head.parentElement.children) other.ariaSort = null;
  head.ariaSort = sign > 0 ? "ascending" : "descending";
  body.append(...[...body.rows].sort((one, two) => sign * (sortable(words(one)) - sortable(words(two)) || words(one).localeCompare(words(two)))));
});

// ---- settings: found while they are typed, reviewed before they are saved
const settings = by("settings");
function seek() {
  const words = by("seek").value.toLowerCase().split(/\s+/).filter(Boolean);
  settings.classList.toggle("seeking", words.length > 0);
  for (const field of settings.querySelectorAll(".field")) field.hidden = !words.every(word => field.dataset.words.includes(word));
  if (by("no-setting")) by("no-setting").hidden = !!$(".field:not([hidden])", settings);
}
async function settle(sent, body) {
  settings.querySelectorAll("[aria-invalid]").forEach(field => field.removeAttribute("aria-invalid"));
  const answer = await ask(sent.getAttribute("action"), { method: "POST", body }, ({ message, param }) => {
    const wrong = sent.elements[param] ?? sent.elements.json;
    say(message); wrong?.setAttribute("aria-invalid", "true");
    if (wrong?.closest(".field.advanced")) by("advanced").checked = true;
    wrong?.focus();
  });
  if (!answer) return;
  const fresh = element(await answer.text());
  by(fresh.firstElementChild.id).replaceWith(fresh);
  by("toast").hidden = true; seek(); by("review").focus(); by("review").scrollIntoView({ block: "nearest" });
}
settings?.addEventListener("submit", async event => {
  event.preventDefault();
  const { target: sent, submitter } = event;
  if (sent.contains(by("seek"))) return;
  const body = new URLSearchParams(new FormData(sent, submitter));       // without a button that is disabled
  if (submitter) submitter.disabled = true;
  await settle(sent, body);
  if (submitter) submitter.disabled = false;
});
if (settings) {
  by("seek").addEventListener("input", () => { seek(); history.replaceState(null, "", `?find=${encodeURIComponent(by("seek").value)}`) }); seek();
  const asked = new URLSearchParams(location.search), servers = by("set-tools-mcp"), [name, url] = ["server", "url"].map(key => asked.get(key));
  if (servers && name && url) {                                       // an address of the page prefills, it saves nothing
    servers.value = JSON.stringify({ ...JSON.parse(servers.value || "{}"), [name]: { url } }, null, 2);
    servers.rows = servers.value.split("\n").length; $(".saving button").focus();
  }
}

// ---- messages: copy, try again, Esc, Enter as the reader wants it, a countdown
const enterKey = "supaclaw.enter";                                  // on a phone, Enter makes a new line until somebody says otherwise
const enterSends = () => (localStorage.getItem(enterKey) ?? (matchMedia("(pointer: coarse)").matches ? "line" : "send")) === "send";
const showEnter = () => {
  const toggle = $("[data-enter-toggle]");
  if (toggle) $("span", toggle).textContent = enterSends() ? "Enter sends" : "Enter makes a new line";
  if (box) box.enterKeyHint = enterSends() ? "send" : "enter";
};
showEnter();
document.addEventListener("click", event => {
  const button = event.target.closest("[data-enter-toggle], [data-again-message], [data-copy-text]");
  if (!button) return;
  const { enterToggle, againMessage: again, copyText: url } = button.dataset;
  if (enterToggle !== undefined) { localStorage.setItem(enterKey, enterSends() ? "line" : "send"); showEnter(); say($("span", button).textContent + ".") }
  if (again) { button.disabled = true; enqueue({ text: "", again }) }
  if (url) {
    const text = fetch(url).then(answer => answer.ok ? answer.text() : Promise.reject(answer)).then(text => new Blob([text], { type: "text/plain" }));
    navigator.clipboard.write([new ClipboardItem({ "text/plain": text })]).then(() => say("Copied."), () => say("The message could not be copied; select the text instead."));
  }
});
const menu = by("about-chat");
document.addEventListener("click", ({ target }) => { if (menu?.open && !menu.contains(target)) menu.open = false });
addEventListener("keydown", event => {
  if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
  if (menu?.open) { event.preventDefault(); menu.open = false; return $("summary", menu).focus() }
  if (form?.dataset.running !== "true") return;
  if ($("[popover]:popover-open, dialog[open]") || (list && !list.hidden)) return;
  event.preventDefault(); submit("/stop answer");
});
setInterval(() => document.querySelectorAll("[data-seconds]").forEach(left => {
  left.dataset.seconds = Math.max(0, left.dataset.seconds - 1); left.textContent = +left.dataset.seconds ? `${left.dataset.seconds} s` : "a moment";
}), 1000);

// ---- Ctrl-K: chats, screens and commands by their words; ? lists the shortcuts
const palette = by("palette"), aim = by("aim"), aims = by("aims");
let aimed = 0, wanted = 0;
const found = () => [...aims.children].filter(li => !li.hidden);
function point() {
  const all = found();
  aimed = Math.max(0, Math.min(aimed, all.length - 1));
  all.forEach((li, at) => { li.id = `aim-${at}`; li.setAttribute("aria-selected", at === aimed); if (at === aimed) li.scrollIntoView({ block: "nearest" }) });
  if (all.length) aim.setAttribute("aria-activedescendant", `aim-${aimed}`); else aim.removeAttribute("aria-activedescendant");
}
const option = (text, note, go) => {
  const li = document.createElement("li"), small = document.createElement("small");
  li.role = "option"; li.dataset.go = go; li.dataset.found = ""; small.textContent = note; li.append(text, small);
  return li;
};
async function narrow() {
  const asked = aim.value.trim(), words = asked.toLowerCase().split(/\s+/).filter(Boolean), mine = ++wanted;
  aims.querySelectorAll("[data-found]").forEach(li => li.remove());
  for (const li of aims.children) { li.hidden = !words.every(word => li.textContent.toLowerCase().includes(word)); li.removeAttribute("id"); li.removeAttribute("aria-selected") }
  const titled = [...chats.querySelectorAll("a")].filter(link => words.every(word => link.textContent.toLowerCase().includes(word)));
  const asideFrom = new Set(titled.map(link => link.pathname));
  aims.append(...titled.slice(0, asked ? 8 : 4).map(link => option(link.firstChild.textContent, "Chat", link.pathname)));
  if (asked) aims.append(option(`Search chats for “${asked}”`, "Chats", `/c?q=${encodeURIComponent(asked)}`), option(`Search memory for “${asked}”`, "Memory", `/memory?q=${encodeURIComponent(asked)}`));
  point();
  if (asked.length < 3) return;
  await new Promise(later => setTimeout(later, 200));
  const rows = mine === wanted && await piece(`/c/rows?q=${encodeURIComponent(asked)}`);
  if (!rows || mine !== wanted) return;
  const said = [...rows.querySelectorAll("a.title")].filter(link => !asideFrom.has(link.pathname)).slice(0, 6);
  aims.append(...said.map(link => option(link.textContent, "Said in", link.getAttribute("href"))));
  point();
}
function take(li) {
  const { go, run } = li?.dataset ?? {};
  if (!li) return;
  palette.close();
  if (go) return location.assign(go);
  if (!form) return location.assign(`/?text=${encodeURIComponent(run)}`);
  box.value = run; changed(); box.focus();
}
function openPalette() { if (palette.open) return palette.close(); by("keys").close(); aim.value = ""; aimed = 0; palette.showModal(); narrow() }
if (palette) {
  addEventListener("keydown", event => {
    const typing = /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName);
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) { event.preventDefault(); openPalette() }
    else if (event.key === "?" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); by("keys").showModal() }
  });
  aim.addEventListener("input", () => { aimed = 0; narrow() });
  aim.addEventListener("keydown", event => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], all = found();
    if (event.isComposing) return;
    if (step && all.length) { event.preventDefault(); aimed = (aimed + step + all.length) % all.length; point() }
    if (event.key === "Enter") { event.preventDefault(); take(all[aimed]) }
  });
  aims.addEventListener("click", event => take(event.target.closest("li")));
  palette.addEventListener("click", event => { if (event.target === palette) palette.close() });
  document.addEventListener("click", event => {
    if (event.target.closest("[data-palette]")) openPalette();
    if (event.target.closest("[data-keys]")) by("keys").showModal();
  });
}
