// Redeems the one-time secret of a sign-in link, which is in the fragment, so it never reached a log on its way here; or the
// code of the environment, from the form.
const link = new URLSearchParams(location.hash.slice(1)).get("t");
history.replaceState(null, "", location.pathname);

async function signIn(secret) {
  const answer = secret
    ? await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ secret }) })
    : await fetch("/login/state");
  const said = await answer.json(), problem = document.querySelector("[role=alert]");
  if (said.signed_in) return location.replace(location.origin + (sessionStorage.getItem("supaclaw.back") ?? "/"));
  problem.hidden = !said.error;
  problem.textContent = said.error?.message;
}
addEventListener("hashchange", () => location.reload());        // a link that was opened in the tab of this page
document.querySelector("form")?.addEventListener("submit", event => {
  event.preventDefault();
  signIn(event.target.elements.code.value.trim());
});
signIn(link);
