// What every page gains from a script: theme, copying, dialogs, fresh numbers, keys.
// Each page is complete without it.

import { confirmByDialog } from "./dialog.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";
import { startTimes } from "./times.js";

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
  let pause = 0;
  input.addEventListener("input", () => {
    apply();
    keepInAddress(input);
    clearTimeout(pause); // the server leaves rows out, too: those that match now are to come
    pause = setTimeout(() => document.dispatchEvent(new CustomEvent("rq:refresh")), 300);
  });
  document.addEventListener("rq:fresh", apply);
}

// The box in the head of a list chooses all that are listed.
function startChoosingAll() {
  const unhide = () => {
    for (const box of document.querySelectorAll("[data-all]")) box.hidden = false;
  };
  unhide();
  document.addEventListener("rq:fresh", unhide);
  document.addEventListener("change", (event) => {
    const name = event.target.dataset.all;
    if (!name) return;
    for (const box of document.getElementsByName(name)) box.checked = event.target.checked;
  });
}

// Where tabs have no room, the chosen one is in view.
function showChosenTab() {
  for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
    const tabs = tab.closest(".tabs");
    tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft - 24;
  }
}

// What is looked for stands in the address: a bookmark and the next refresh keep it.
function keepInAddress(input) {
  const address = new URL(location.href);
  if (input.value.trim()) address.searchParams.set(input.name, input.value.trim());
  else address.searchParams.delete(input.name);
  history.replaceState(history.state, "", address);
}

// Who fills in what an action needs means that action.
function startChoosing() {
  document.addEventListener("input", (event) => {
    const deed = event.target.closest("[data-chooses]")?.closest(".deed");
    if (deed) deed.querySelector("input[type=radio]").checked = true;
  });
}

startTheme();
startChoosing();
startChoosingAll();
showChosenTab();
startCopying();
startFilter();
confirmByDialog();
startLive();
startTimes();
startKeys();
