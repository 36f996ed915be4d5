// Fresh numbers: the page is asked for again and its live parts take what changed.
//
// Parts are marked data-live and found by id. A node keeps its place and its focus as
// long as its id lives. While the pointer or the focus is on a list, its rows change
// only in place: nothing moves away from under a finger.

const EVERY = 2000; // ms
const SLOWEST = 30000;

let timer = 0;
let wait = EVERY;
let stopped = false;
let freshAt = Date.now();
let lost = false; // the last question was not answered

export function startLive() {
  const button = document.getElementById("live");
  if (!document.querySelector("[data-live]")) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    stopped = !stopped;
    if (!stopped) refresh();
    tell();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) refresh();
  });
  document.addEventListener("rq:refresh", refresh);
  setInterval(tell, 1000);
  tell();
  plan();
}

function tell() {
  const button = document.getElementById("live");
  const seconds = Math.round((Date.now() - freshAt) / 1000);
  const stale = !stopped && (lost || seconds > 5);
  const old = lost ? `no answer, ${seconds} s old` : `${seconds} s old`;
  const text = stopped ? "paused" : stale ? old : "live";
  button.classList.toggle("stale", stale);
  button.setAttribute("aria-pressed", String(stopped));
  button.title = "Pause or resume live updates (u)";
  if (button.textContent !== text) button.textContent = text;
}

function plan() {
  clearTimeout(timer);
  timer = setTimeout(refresh, wait);
}

async function refresh() {
  clearTimeout(timer);
  if (stopped || document.hidden) return;
  try {
    const reply = await fetch(location.href, {
      headers: { "X-RQ-Live": "1", Accept: "text/html" },
    });
    if (reply.ok) {
      take(new DOMParser().parseFromString(await reply.text(), "text/html"));
      freshAt = Date.now();
      wait = EVERY;
      lost = false;
    } else {
      lost = true;
      wait = Math.min(wait * 2, SLOWEST);
    }
  } catch {
    lost = true;
    wait = Math.min(wait * 2, SLOWEST);
  }
  tell();
  plan();
}

function take(page) {
  if (document.querySelector("dialog[open]")) return;
  for (const part of document.querySelectorAll("[data-live]")) {
    if (part.parentElement.closest("[data-live]")) continue;
    const fresh = page.getElementById(part.id);
    if (fresh) morph(part, fresh);
  }
  const clock = page.getElementById("server-time");
  if (clock) morph(document.getElementById("server-time"), clock);
  document.dispatchEvent(new CustomEvent("rq:fresh"));
}

const KEPT = new Set(["hidden", "open"]);

export function morph(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    const kept = KEPT.has(name) || (name === "class" && old.classList.contains("at"));
    if (!kept && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (isHeld(old)) morphHeld(old, fresh);
  else morphChildren(old, fresh);
}

// A list that the pointer or the focus is on.
function isHeld(node) {
  const rows = node.dataset?.live === "rows";
  return rows && (node.matches(":hover") || node.contains(document.activeElement));
}

function morphHeld(old, fresh) {
  for (const row of old.children) {
    const same = row.id && [...fresh.children].find((one) => one.id === row.id);
    if (same) morph(row, same);
    else if (row.id) row.classList.add("soft");
  }
}

function morphChildren(old, fresh) {
  const known = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const found = match(at, next, known);
    if (!found) {
      old.insertBefore(document.importNode(next, true), at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else old.insertBefore(found, at);
    if (found.nodeType === Node.ELEMENT_NODE) morph(found, next);
    else if (found.data !== next.data) found.data = next.data;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// The node to keep for `next`: the one with its id, or one of its kind without any.
function match(at, next, known) {
  if (next.nodeType === Node.ELEMENT_NODE && next.id) return known.get(next.id);
  if (!at || at.nodeType !== next.nodeType) return undefined;
  if (at.nodeType === Node.TEXT_NODE) return at;
  return at.nodeName === next.nodeName && !at.id ? at : undefined;
}
