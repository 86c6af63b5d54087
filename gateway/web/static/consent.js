// The cookie isn't sent when a program's link leads here, so the page asks by itself whether this browser is signed in.
const problem = document.querySelector("[role=alert]"), connect = document.querySelector("button.primary");

async function look() {
  const { signed_in } = await (await fetch("/login/state")).json();
  problem.hidden = signed_in;
  connect.disabled = !signed_in;
}
addEventListener("focus", look);                                 // back from the tab of the sign-in link
look();
