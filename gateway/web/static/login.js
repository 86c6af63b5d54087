// Redeems the one-time secret of a sign-in link. It is in the fragment, so it never reached a log on its way here.
const secret = new URLSearchParams(location.hash.slice(1)).get("t");
history.replaceState(null, "", location.pathname);

async function signIn() {
  const answer = secret
    ? await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ secret }) })
    : await fetch("/login/state");
  if (secret ? answer.ok : (await answer.json()).signed_in) location.replace("/");
  else if (secret) document.querySelector("[role=alert]").hidden = false;
}
signIn();
