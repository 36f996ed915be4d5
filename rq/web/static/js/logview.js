// Lines on the page: appended in blocks, the oldest dropped when there are too many; what
// was dropped is said.

import { START, Terminal } from "./ansi.js";
import { thinned } from "./visible.js";

const BLOCK = 100; // lines that are dropped together
const MOST_LINES = 20000;
const MOST_WEIGHT = 12_000_000; // characters, and what the nodes around them are worth
const SPAN_WEIGHT = 60;
const END = /^\d+ - \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ - RQ END - /;

export class LogView {
  constructor(box, jump) {
    this.box = box;
    this.jump = jump;
    this.terminal = new Terminal();
    this.lines = document.createElement("div");
    this.lines.className = "lines";
    box.replaceChildren(this.lines);
    this.block = null;
    this.shown = new Map(); // the lines that may change, and their elements
    this.dropped = 0; // lines that are no longer on the page
    this.count = 0;
    this.weight = 0;
    this.weights = new WeakMap(); // of each line on the page
    this.missed = 0;
    this.follow = true;
    this.wanted = "";
    this.onFollow = () => {};
    this.onFull = () => {};
    this.pending = [];
    this.scheduled = false;
    this.touched = 0; // when the reader's own hand last moved the view
    for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) {
      box.addEventListener(kind, () => (this.touched = performance.now()), { passive: true });
    }
    box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    jump?.addEventListener("click", () => this.setFollow(true));
  }

  // ---- writing; what comes between two frames is shown at once

  write(text) {
    this.pending.push(...this.terminal.write(text));
    const over = surplus(this.pending);
    if (over > 0 && this.follow) this.leaveOut(over);
    else if (over > 0) this.onFull();
    this.schedule();
  }

  // Too many lines came at once: the first of them are not shown, which a line says.
  leaveOut(over) {
    const lines = this.pending.splice(0, over).filter((line) => this.settle(line));
    const before = this.pending[0]?.leftOut ?? 0;
    if (before) this.pending.shift();
    this.pending.unshift({ leftOut: before + lines.reduce((sum, { leftOut }) => sum + (leftOut ?? 1), 0) });
  }

  // Whether a line that will not change any more has still to be put on the page.
  settle(line) {
    const made = this.shown.get(line);
    if (!made) return true;
    this.fill(made, line.value());
    this.shown.delete(line);
    return false;
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    // A hidden tab has no frames, and no hurry.
    if (document.hidden) setTimeout(() => this.show(), 250);
    else requestAnimationFrame(() => this.show());
  }

  show() {
    this.scheduled = false;
    const lines = this.pending;
    this.pending = [];
    for (const line of lines) {
      if (line.leftOut) this.note(`${counted(line.leftOut)} not shown: written faster than this page can show`);
      else if (this.settle(line)) this.append(line.value());
    }
    this.showScreen();
    this.missed += lines.length;
    this.dropOld();
    this.keepEnd();
  }

  showScreen() {
    const { rows } = this.terminal;
    const last = rows.length - 1;
    for (const [index, line] of rows.entries()) {
      const made = this.shown.get(line);
      if (made && line.changed) this.fill(made, line.value());
      // A line that has only begun, and is empty, is none yet.
      else if (!made && (index < last || line.length)) this.shown.set(line, this.append(line.value()));
      else if (!made) continue;
      line.changed = false;
    }
  }

  append(line) {
    if (!this.block || this.block.childElementCount >= BLOCK) {
      this.block = document.createElement("div");
      this.block.className = "block";
      this.lines.append(this.block);
    }
    const made = this.element(line);
    this.block.append(made);
    return made;
  }

  element(line) {
    const made = document.createElement("div");
    made.className = "line";
    this.count += 1;
    return this.fill(made, line);
  }

  fill(made, line) {
    fill(made, line, this.wanted);
    const weight = weightOf(line);
    this.weight += weight - (this.weights.get(made) ?? 0);
    this.weights.set(made, weight);
    return made;
  }

  // A line of the page's own; what follows it is written by another terminal.
  mark(text) {
    this.terminal.end();
    this.show();
    this.shown.clear();
    this.terminal = new Terminal();
    this.note(text);
    this.keepEnd();
  }

  note(text) {
    this.append({ spans: [[`… ${text} …`, ""]], cut: 0 }).classList.add("mark", "note");
  }

  empty(text) {
    this.terminal.end();
    this.show();
    if (!this.count) this.mark(text);
  }

  // Never what somebody reads: then nothing more is taken until they follow again.
  dropOld() {
    while (this.count > MOST_LINES || this.weight > MOST_WEIGHT) {
      if (!this.follow) {
        this.onFull();
        return;
      }
      const first = this.lines.querySelector(".block");
      if (!first || first === this.block) return;
      this.drop(first);
    }
  }

  drop(block) {
    this.count -= block.childElementCount;
    this.dropped += block.childElementCount;
    for (const line of block.children) this.weight -= this.weights.get(line) ?? 0;
    block.remove();
    const gone = document.createElement("div");
    gone.className = "log-gone small soft";
    gone.textContent = `${counted(this.dropped)} before no longer on this page: download the log to see all of it`;
    this.top(gone);
  }

  isFull() {
    return this.count + 2000 > MOST_LINES || this.weight > MOST_WEIGHT / 2;
  }

  // ---- earlier lines

  // What stands above all lines, in the place of what stood there.
  top(node) {
    this.lines.querySelector(":scope > :not(.block)")?.remove();
    if (node) this.lines.prepend(node);
  }

  // The first line, whose beginning has come: `line` is all of it.
  replaceFirst(line) {
    const made = this.lines.querySelector(".line:not(.note)");
    if (made) this.fill(made, line);
    return Boolean(made);
  }

  // Begin again with a terminal that has written what stands here, and more before it.
  restart() {
    for (const made of this.shown.values()) {
      this.count -= 1;
      this.weight -= this.weights.get(made) ?? 0;
      made.remove();
    }
    this.shown.clear();
    this.terminal = new Terminal();
  }

  prepend(lines) {
    const before = this.box.scrollHeight - this.box.scrollTop;
    const blocks = document.createDocumentFragment();
    for (let at = 0; at < lines.length; at += BLOCK) {
      const block = document.createElement("div");
      block.className = "block";
      for (const line of lines.slice(at, at + BLOCK)) {
        block.append(this.element(line));
      }
      blocks.append(block);
    }
    this.lines.prepend(blocks);
    this.box.scrollTop = this.box.scrollHeight - before;
  }

  // ---- where the reader is

  setFollow(on) {
    this.follow = on;
    this.onFollow(on);
    if (on) this.missed = 0;
    this.keepEnd();
  }

  keepEnd() {
    if (this.follow) {
      this.box.scrollTop = this.box.scrollHeight;
      this.lastTop = this.box.scrollTop; // a reader may scroll up before this is told
      this.missed = 0;
    }
    if (!this.jump) return;
    this.jump.hidden = this.follow || !this.missed;
    const text = `Jump to the end, ${this.missed} new line${this.missed === 1 ? "" : "s"}`;
    if (!this.jump.hidden && this.jump.textContent !== text) this.jump.textContent = text;
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    const up = scrollTop < (this.lastTop ?? 0) - 2;
    this.lastTop = scrollTop;
    const byHand = performance.now() - this.touched < 1500;
    if (this.follow && up && !atEnd) this.setFollow(false);
    else if (!this.follow && atEnd && !up && byHand) this.setFollow(true);
  }

  highlight(wanted) {
    this.wanted = wanted.toLowerCase();
    let first = null;
    for (const line of this.lines.querySelectorAll(".line")) {
      const hit = isHit(line, this.wanted);
      line.classList.toggle("hit", hit);
      line.classList.remove("at");
      if (hit) first ??= line;
    }
    if (!first) return;
    this.setFollow(false);
    first.classList.add("at");
    first.scrollIntoView({ block: "center" });
  }
}

function counted(lines) {
  return lines === 1 ? "1 line is" : `${lines.toLocaleString("en")} lines are`;
}

function weightOf(line) {
  const { spans } = line.value ? line.value() : line;
  return spans.reduce((sum, [text]) => sum + text.length + SPAN_WEIGHT, SPAN_WEIGHT);
}

// Returns how many of the lines, from the first on, are more than the view takes at once.
function surplus(lines) {
  let weight = 0;
  let at = lines.length;
  while (at > 0 && lines.length - at < MOST_LINES && weight < MOST_WEIGHT / 4) {
    at -= 1;
    weight += lines[at].leftOut ? 0 : weightOf(lines[at]);
  }
  return at;
}

// Text nodes and class names only: what a script writes never becomes markup.
function fill(made, { spans, cut }, wanted) {
  made.replaceChildren(
    ...spans.map(([text, style]) => {
      if (!style) return document.createTextNode(thinned(text));
      const span = document.createElement("span");
      span.className = style;
      span.textContent = thinned(text);
      return span;
    }),
  );
  if (cut) {
    const note = document.createElement("span");
    note.className = "cut";
    note.textContent = ` … ${cut.toLocaleString("en")} characters of this line are not shown`;
    made.append(note);
  }
  if (made.classList.contains("note")) return;
  made.classList.toggle("mark", START.test(made.textContent));
  made.classList.toggle("closing", END.test(made.textContent));
  if (wanted) made.classList.toggle("hit", isHit(made, wanted));
}

function isHit(line, wanted) {
  return Boolean(wanted) && line.textContent.toLowerCase().includes(wanted);
}
