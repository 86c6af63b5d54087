// What a page of another program tries on the gateway with the visitor's cookie; tells what it got of each.
async gateway => {
  const tried = {}, nothing = "nothing";
  const pause = ms => new Promise(over => setTimeout(over, ms));
  const attempt = async (name, work) => {
    const got = work().then(text => text || nothing, () => nothing);
    tried[name] = await Promise.race([got, pause(1000).then(() => nothing)]);
  };
  const made = (tag, inside, more) => inside.appendChild(Object.assign(document.createElement(tag), more));
  const text = async (path, options) => (await fetch(gateway + path, { credentials: "include", ...options })).text();
  const body = new URLSearchParams({ text: "from elsewhere", client_id: "evil" });

  for (const mode of ["cors", "no-cors"]) {
    await attempt(`read ${mode}`, () => text("/", { mode }));
    await attempt(`state ${mode}`, () => text("/login/state", { mode }));
    await attempt(`stream ${mode}`, () => text("/chat/events", { mode }));
    await attempt(`act ${mode}`, () => text("/chat", { mode, method: "POST", body }));
  }
  await attempt("header", () => text("/chat", { method: "POST", body, headers: { Authorization: "Bearer x" } }));
  await attempt("events", () => new Promise((read, refused) => {
    const source = new EventSource(`${gateway}/chat/events`, { withCredentials: true });
    source.onmessage = event => read(event.data);
    source.onerror = refused;
  }));
  await attempt("frame", () => new Promise((read, refused) => {
    const frame = made("iframe", document.body, { src: `${gateway}/`, name: "frame" });
    frame.onload = () => { try { read(frame.contentWindow.document.body.innerText) } catch (error) { refused(error) } };
  }));
  for (const path of ["/chat", "/logout?everywhere=true"]) {
    const form = made("form", document.body, { action: gateway + path, method: "post", target: "frame" });
    for (const [name, value] of body) made("input", form, { name, value, type: "hidden" });
    form.submit();
    await pause(500);
  }
  return tried;
}
