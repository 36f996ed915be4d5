// What every page gains from a script: theme, copying, dialogs, fresh numbers, keys.
// Each page is complete without it.

import { confirmByDialog } from "./dialog.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

function startCopying() {
  const unhide = () => {
    for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  };
  unhide();
  document.addEventListener("rq:fresh", unhide);
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const copied = await copy(button.dataset.copy);
    const last = button.lastChild;
    const before = last.textContent;
    last.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => (last.textContent = before), 1500);
  });
}

// navigator.clipboard exists only on https and localhost.
async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // fall through to the older way
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

function startFilter() {
  const input = document.querySelector("[data-filter]");
  if (!input) return;
  const apply = () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("tr[data-name]")) {
      row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
    }
  };
  input.addEventListener("input", apply);
  document.addEventListener("rq:fresh", apply);
}

startTheme();
startCopying();
startFilter();
confirmByDialog();
startLive();
startKeys();
