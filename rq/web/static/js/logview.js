// Lines on the page: appended in blocks, the oldest dropped when there are too many.

import { Terminal } from "./ansi.js";

const BLOCK = 100; // lines that are dropped together
const MOST_LINES = 20000;
const MOST_WEIGHT = 12_000_000; // characters, and what the nodes around them are worth
const SPAN_WEIGHT = 60;
const START = /^\d+ - \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ - RQ START - /;
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
    this.last = null; // the element of the line that is being written
    this.count = 0;
    this.weight = 0;
    this.weights = new WeakMap(); // of each line on the page
    this.missed = 0;
    this.follow = true;
    this.wanted = "";
    this.dropFirstLine = false;
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
    for (const line of this.terminal.write(text)) {
      if (this.dropFirstLine) this.dropFirstLine = false;
      else this.pending.push(line);
    }
    const over = surplus(this.pending);
    if (over > 0 && this.follow) this.pending.splice(0, over);
    else if (over > 0) this.onFull();
    this.schedule();
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
      this.append(line);
      this.last = null;
    }
    if (!this.dropFirstLine) this.showCurrent();
    this.missed += lines.length;
    this.dropOld();
    this.keepEnd();
  }

  showCurrent() {
    const line = this.terminal.current();
    if (!this.last && !line.spans.length) return;
    if (this.last) this.fill(this.last, line);
    else this.last = this.append(line);
  }

  append(line) {
    if (this.last) return this.fill(this.last, line);
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

  mark(text) {
    this.show();
    this.last = null;
    const made = this.append({ spans: [[`… ${text} …`, ""]], cut: 0 });
    made.classList.add("mark");
    this.keepEnd();
  }

  empty(text) {
    if (!this.count && !this.pending.length) this.mark(text);
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
      this.count -= first.childElementCount;
      for (const line of first.children) this.weight -= this.weights.get(line) ?? 0;
      first.remove();
    }
  }

  isFull() {
    return this.count + 2000 > MOST_LINES || this.weight > MOST_WEIGHT / 2;
  }

  // ---- earlier lines

  top(node) {
    this.lines.prepend(node);
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

function weightOf({ spans }) {
  return spans.reduce((sum, [text]) => sum + text.length + SPAN_WEIGHT, SPAN_WEIGHT);
}

// Returns how many of the lines, from the first on, are more than the view takes at once.
function surplus(lines) {
  let weight = 0;
  let at = lines.length;
  while (at > 0 && lines.length - at < MOST_LINES && weight < MOST_WEIGHT / 4) {
    at -= 1;
    weight += weightOf(lines[at]);
  }
  return at;
}

// Text nodes and class names only: what a script writes never becomes markup.
function fill(made, { spans, cut }, wanted) {
  made.replaceChildren(
    ...spans.map(([text, style]) => {
      if (!style) return document.createTextNode(text);
      const span = document.createElement("span");
      span.className = style;
      span.textContent = text;
      return span;
    }),
  );
  if (cut) {
    const note = document.createElement("span");
    note.className = "cut";
    note.textContent = ` … ${cut.toLocaleString("en")} characters of this line are not shown`;
    made.append(note);
  }
  made.classList.toggle("mark", START.test(made.textContent));
  made.classList.toggle("closing", END.test(made.textContent));
  if (wanted) made.classList.toggle("hit", isHit(made, wanted));
}

function isHit(line, wanted) {
  return Boolean(wanted) && line.textContent.toLowerCase().includes(wanted);
}
