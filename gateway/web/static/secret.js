// Sends a typed secret with the one-time link's own. That is in the fragment, so it never reached a log on its way here.
const link = new URLSearchParams(location.hash.slice(1)), secret = link.get("t"), form = document.querySelector("form");
const problem = document.querySelector("[role=alert]");
history.replaceState(null, "", location.pathname);

function tell(text) {
  problem.hidden = !text;
  problem.textContent = text;
}

if (secret) {
  const name = link.get("name") ?? "";
  document.querySelector("#name").textContent = name;
  if (/\W/.test(name)) for (const each of document.querySelectorAll("[data-file]")) each.textContent = each.dataset.file;
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const answer = await fetch("/secret", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ secret, value: form.value.value }) });
    if (!answer.ok) return tell((await answer.json()).error?.message ?? "Nothing was stored.");
    tell("");
    form.remove();
    document.querySelector("[role=status]").hidden = false;
  });
} else tell("Open the link exactly as it was sent to you; it works once.");
