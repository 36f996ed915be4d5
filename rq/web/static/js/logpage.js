// The log: follows its stream, shows what a terminal would, keeps what fits.

import { Terminal } from "./ansi.js";
import { LogView } from "./logview.js";
import { visible } from "./visible.js";

const FIRST = 64 * 1024; // bytes shown at first
const EARLIER = 256 * 1024; // bytes loaded upward at a time
const STORED = "rq_log_";

const box = document.getElementById("log");

class LogPage {
  constructor(view) {
    this.view = view;
    this.small = Boolean(box.dataset.small);
    this.first = 0; // byte at which the shown part begins
    this.at = 0; // byte up to which we have it
    this.source = null;
    this.ended = false;
    this.held = false; // the view is full, and somebody reads it
    this.opened = 0;
  }

  async begin() {
    const size = await this.size();
    const asked = new URLSearchParams(location.search).get("from");
    const from = !this.small && /^\d{1,15}$/.test(asked ?? "") ? Number(asked) : size - FIRST;
    this.first = this.at = Math.max(0, Math.min(from, size));
    this.controls();
    if (this.first > 0) {
      this.view.dropFirstLine = true;
      this.offerEarlier();
    }
    if (asked !== null && !this.small) this.view.setFollow(false);
    this.open();
    document.addEventListener("rq:fresh", () => this.look());
    if (!this.small && document.getElementById("find").value) this.find();
  }

  async size() {
    if (box.dataset.size) return Number(box.dataset.size);
    try {
      return (await (await fetch(box.dataset.twin)).json()).size;
    } catch {
      return 0;
    }
  }

  // ---- the stream

  open() {
    this.ended = this.held = false;
    this.opened = Date.now();
    // Who reads somewhere wants what comes next there, not what is newest.
    const keep = this.view.follow ? "" : "&keep";
    const source = new EventSource(`${box.dataset.follow}?from=${this.at}${keep}`);
    this.source = source;
    const on = (name, act) =>
      source.addEventListener(name, (event) => act(JSON.parse(event.data)));
    on("log", (told) => this.take(told));
    on("state", (told) => this.state(told));
    on("end", (told) => this.end(told));
    on("skip", (told) => {
      this.view.mark(`${size(told.to - told.at)} skipped: written faster than this page can show`);
      this.view.terminal = new Terminal();
      this.view.dropFirstLine = true;
      this.at = told.to;
    });
    on("reset", () => {
      this.view.mark("the log was started anew");
      this.view.terminal = new Terminal();
      this.at = this.first = 0;
    });
    source.addEventListener("error", () => this.say(this.ended ? "" : "reconnecting…"));
    source.addEventListener("open", () => this.say(size(this.at)));
  }

  take(told) {
    if (told.at < this.at || this.held) return; // seen before a reconnection
    this.at = told.to;
    this.view.write(told.text);
    if (!this.held) this.say(size(this.at));
  }

  state(told) {
    this.told = told;
    const says = document.getElementById("says");
    if (says) says.textContent = visible(told.text.slice(0, 200));
    document.dispatchEvent(new CustomEvent("rq:refresh"));
  }

  end(told) {
    this.ended = true;
    this.source.close();
    const line = document.getElementById("log-end");
    const story = this.told?.story;
    const text = told.lost || (story ? `${story.what} ${story.why}` : "It has ended.");
    if (line) {
      line.textContent = visible(text);
      line.hidden = false;
    }
    this.view.empty("The script wrote nothing.");
    document.dispatchEvent(new CustomEvent("rq:refresh"));
  }

  // Another attempt after the end, say by Retry: the page's badge tells.
  look() {
    const badge = document.querySelector("#badge .badge");
    const lives = badge && (badge.classList.contains("run") || badge.classList.contains("que"));
    if (!this.ended || !lives || Date.now() - this.opened < 2000) return;
    const line = document.getElementById("log-end");
    if (line) line.hidden = true;
    this.open();
  }

  say(text) {
    const note = document.getElementById("log-note");
    if (note && note.textContent !== text) note.textContent = text;
  }

  // ---- upward

  offerEarlier() {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "log-more small";
    button.textContent = `Load earlier output (${size(this.first)} more)`;
    button.addEventListener("click", () => this.earlier(button));
    this.view.top(button);
  }

  async earlier(button) {
    if (this.view.isFull()) {
      button.textContent = "This page can hold no more: download the log to see all of it";
      button.disabled = true;
      return;
    }
    button.disabled = true;
    const from = Math.max(0, this.first - EARLIER);
    const range = { Range: `bytes=${from}-${this.first - 1}` };
    const reply = await fetch(box.dataset.log, { headers: range });
    const bytes = new Uint8Array(await reply.arrayBuffer());
    const cut = from > 0 ? bytes.indexOf(10) + 1 : 0;
    const lines = new Terminal();
    const text = new TextDecoder().decode(bytes.subarray(cut));
    this.view.prepend(lines.write(text));
    this.first = from + cut;
    button.remove();
    if (this.first > 0) this.offerEarlier();
  }

  // ---- controls

  controls() {
    if (this.small) return;
    this.toggle("follow", (on) => this.view.setFollow(on), true);
    this.toggle("wrap", (on) => box.classList.toggle("wrap", on), stored("wrap", true));
    this.view.onFollow = (on) => {
      press("follow", on);
      if (on && this.held) this.open();
    };
    this.view.onFull = () => {
      if (this.held) return;
      this.held = true;
      this.source.close();
      this.say(`${size(this.at)}; press Follow to go on`);
    };
    const form = document.querySelector("form.find");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.find();
    });
  }

  toggle(name, act, on) {
    const button = document.getElementById(name);
    button.hidden = false;
    press(name, on);
    act(on);
    button.addEventListener("click", () => {
      const now = button.getAttribute("aria-pressed") !== "true";
      press(name, now);
      keep(name, now);
      act(now);
    });
  }

  // In what is shown at once; in the whole file by asking the server.
  async find() {
    const wanted = document.getElementById("find").value;
    this.view.highlight(wanted);
    const found = document.getElementById("found");
    found.hidden = !wanted;
    if (!wanted) return;
    await this.more(wanted, 0, found);
  }

  async more(wanted, from, found) {
    const asked = new URLSearchParams({ find: wanted, from });
    const told = await (await fetch(`${box.dataset.twin}?${asked}`)).json();
    if (from === 0) found.replaceChildren();
    if (from === 0) found.append(headline(told, wanted));
    for (const one of told.found) found.append(this.hit(one, wanted));
    found.querySelector(".log-more")?.remove();
    if (told.next === null) return;
    const button = document.createElement("button");
    button.className = "small log-more";
    button.type = "button";
    button.textContent = `Search on from ${size(told.next)}`;
    button.addEventListener("click", () => this.more(wanted, told.next, found));
    found.append(button);
  }

  hit(one, wanted) {
    const link = document.createElement("a");
    const from = Math.max(0, one.at - 8192);
    link.href = `?${new URLSearchParams({ from, find: wanted })}`;
    link.className = "panel-note clip small";
    const place = document.createElement("span");
    place.className = "soft";
    place.textContent = `at ${one.at.toLocaleString("en")}  `;
    const text = document.createElement("code");
    text.textContent = visible(one.text);
    link.append(place, text);
    return link;
  }
}

function headline(told, wanted) {
  const line = document.createElement("p");
  line.className = "panel-note";
  const many = told.next === null ? "" : "at least ";
  line.textContent = told.found.length
    ? `${many}${told.found.length} ${told.found.length === 1 ? "match" : "matches"} of “${wanted}” in the whole log`
    : `“${wanted}” is not in the ${told.next === null ? "" : "searched part of the "}log`;
  return line;
}

function press(name, on) {
  document.getElementById(name)?.setAttribute("aria-pressed", String(on));
}

function stored(name, otherwise) {
  try {
    const kept = localStorage.getItem(STORED + name);
    return kept === null ? otherwise : kept === "true";
  } catch {
    return otherwise;
  }
}

function keep(name, on) {
  try {
    if (name === "wrap") localStorage.setItem(STORED + name, String(on));
  } catch {
    // a browser that keeps nothing still works
  }
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) {
    bytes /= 1024;
    at += 1;
  }
  return `${at ? bytes.toFixed(1) : bytes} ${units[at]}`;
}

if (box) new LogPage(new LogView(box, document.getElementById("jump"))).begin();
