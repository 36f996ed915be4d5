// Keys for those who keep their hands there; never while typing, never with a modifier.

import { openDialog } from "./dialog.js";

const HELP = [
  ["g o", "overview"],
  ["g r", "relay"],
  ["g h", "history"],
  ["g t", "timers"],
  ["g s", "system"],
  ["/", "find"],
  ["j  k", "next, previous row"],
  ["Enter", "open the row"],
  ["l", "log of the message, or of the chosen row"],
  ["n", "new message"],
  ["p", "pause the queue"],
  ["c  r  a", "cancel, retry, acknowledge: the chosen row, or what the page is about"],
  ["f  w", "follow, wrap the log"],
  ["t", "light or dark"],
  ["u", "pause or resume live updates"],
  ["?", "this list"],
];
const PLACES = { o: "", r: "relay", h: "history", t: "timers", s: "system" };
const ROW_KEYS = "acrl";
const BUTTONS = { t: "theme", u: "live", "?": "help", f: "follow", w: "wrap" };

let going = false;

export function startKeys() {
  const help = document.getElementById("help");
  help.hidden = false;
  help.addEventListener("click", () => openDialog("Keyboard", list()));
  document.addEventListener("keydown", onKey);
}

function list() {
  const made = document.createElement("dl");
  made.className = "keys";
  for (const [keys, what] of HELP) {
    const term = document.createElement("dt");
    for (const key of keys.split("  ")) {
      const one = document.createElement("kbd");
      one.textContent = key;
      term.append(one, " ");
    }
    const text = document.createElement("dd");
    text.textContent = what;
    made.append(term, text);
  }
  return made;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select")) return;
  if (act(event.key)) event.preventDefault();
}

function act(key) {
  if (going) {
    going = false;
    if (!(key in PLACES)) return false;
    location.assign(document.body.dataset.root + PLACES[key]);
    return true;
  }
  if (key === "g") {
    going = true;
    setTimeout(() => (going = false), 1500);
    return true;
  }
  if (key === "/") return press("#find", "focus");
  if (key === "j" || key === "k") return move(key === "j" ? 1 : -1);
  if (key === "Enter") return openRow();
  if (key in BUTTONS) return press(`#${BUTTONS[key]}`, "click");
  return /^[a-z]$/.test(key) && pressOf(key);
}

// What acts on a message means the chosen row, and nothing else while there is one.
function pressOf(key) {
  const row = document.querySelector("tr.at");
  if (row && ROW_KEYS.includes(key)) {
    row.querySelector(`[data-row-key="${key}"]`)?.click();
    return true;
  }
  return press(`[data-key="${key}"]`, "click");
}

function press(selector, verb) {
  const found = document.querySelector(selector);
  if (!found || found.hidden) return false;
  found[verb]();
  return true;
}

function rows() {
  return [...document.querySelectorAll("tr[data-row]")].filter((row) => !row.hidden);
}

function move(step) {
  const all = rows();
  if (!all.length) return false;
  const now = all.findIndex((row) => row.classList.contains("at"));
  const next = now < 0 ? (step > 0 ? 0 : all.length - 1) : now + step;
  const row = all[Math.min(Math.max(next, 0), all.length - 1)];
  for (const one of all) one.classList.toggle("at", one === row);
  row.querySelector("a")?.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
  return true;
}

// Enter on a focused link or button is the browser's own business.
function openRow() {
  if (document.activeElement !== document.body) return false;
  const row = document.querySelector("tr.at");
  row?.querySelector("a")?.click();
  return Boolean(row);
}
