// The log: follows its stream, shows what a terminal would, keeps what fits.

import { Terminal } from "./ansi.js";
import { LogView } from "./logview.js";
import { lineStart, textOf } from "./pieces.js";
import { visible } from "./visible.js";

const EARLIER = 256 * 1024; // bytes loaded upward at a time
const HEAD = 1024 * 1024; // characters of the first line that are kept
const STORED = "rq_log_";

const box = document.getElementById("log");

class LogPage {
  constructor(view) {
    this.view = view;
    this.small = Boolean(box.dataset.small);
    this.first = 0; // byte at which the shown part begins
    this.at = 0; // byte up to which we have it
    this.head = ""; // the first line, which may begin in an earlier piece
    this.isHeadWhole = false; // it has ended, or is longer than what is kept
    this.source = null;
    this.ended = false;
    this.held = false; // the view is full, and somebody reads it
    this.opened = 0;
  }

  async begin() {
    this.first = this.at = await this.start();
    const asked = new URLSearchParams(location.search).get("from");
    this.controls();
    this.offerEarlier();
    if (asked !== null && !this.small) this.view.setFollow(false);
    this.open();
    document.addEventListener("rq:fresh", () => this.look());
    if (!this.small && document.getElementById("find").value) this.find();
  }

  // The server says where the first line of what is shown begins.
  async start() {
    if (box.dataset.start) return Number(box.dataset.start);
    try {
      return (await (await fetch(box.dataset.twin)).json()).start;
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
      this.at = told.to;
      this.isHeadWhole = true;
    });
    on("reset", () => {
      this.view.mark("another log follows, from its beginning");
      this.at = this.first = 0;
      this.isHeadWhole = true;
      this.view.top(null);
    });
    source.addEventListener("error", () => this.say(this.ended ? "" : "reconnecting…"));
    source.addEventListener("open", () => this.say(size(this.at)));
  }

  take(told) {
    if (told.at < this.at || this.held) return; // seen before a reconnection
    if (told.at > this.at) this.view.mark(`${size(told.at - this.at)} are missing here`);
    this.at = told.to;
    this.keepHead(told.text);
    this.view.write(told.text);
    if (!this.held) this.say(size(this.at));
  }

  keepHead(text) {
    if (this.isHeadWhole || this.first === 0) return;
    const newline = text.indexOf("\n");
    this.head += newline < 0 ? text : text.slice(0, newline + 1);
    this.isHeadWhole = newline >= 0 || this.head.length > HEAD;
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
    this.view.keepEnd(); // the sentence has taken room from the lines
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
    if (this.first === 0) return this.view.top(null);
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
    try {
      await this.load(Math.max(0, this.first - EARLIER));
    } catch {
      button.disabled = false;
      button.textContent = "The earlier output could not be loaded: try again";
    }
  }

  async load(from) {
    const range = { Range: `bytes=${from}-${this.first - 1}` };
    const reply = await fetch(box.dataset.log, { headers: range });
    if (reply.status !== 206) throw new Error(`status ${reply.status}`);
    const bytes = new Uint8Array(await reply.arrayBuffer());
    if (bytes.length !== this.first - from) throw new Error("not all of it came");
    const cut = from > 0 ? lineStart(bytes) : 0;
    this.put(textOf(bytes.subarray(cut)));
    this.first = from + cut;
    this.offerEarlier();
  }

  // Put a piece before what is shown. If it ends inside a line, the rest of that is the
  // first line that is shown, and both are one.
  put(piece) {
    const isSeam = !piece.endsWith("\n");
    if (!isSeam) this.view.prepend(linesOf(piece));
    else if (this.head.length > HEAD) this.view.prepend([...linesOf(piece), GOES_ON]);
    else if (this.isHeadWhole) this.join(linesOf(piece + this.head));
    else {
      this.view.show();
      this.view.restart();
      this.view.write(piece + this.head);
    }
    const newline = piece.indexOf("\n");
    this.head = newline < 0 ? piece + this.head : piece.slice(0, newline + 1);
    this.isHeadWhole ||= newline >= 0;
  }

  join(lines) {
    const last = lines.pop();
    if (!this.view.replaceFirst(last)) lines.push(last);
    this.view.prepend(lines);
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

const GOES_ON = { spans: [["… this line goes on in the next one …", ""]], cut: 0 };

function linesOf(text) {
  const terminal = new Terminal();
  const lines = [...terminal.write(text)];
  terminal.end();
  lines.push(...terminal.rows);
  if (text.endsWith("\n")) lines.pop();
  return lines.map((line) => line.value());
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
