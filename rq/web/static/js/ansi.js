// What a terminal would show, as lines of styled text; knows nothing of the document.
//
// Text comes in pieces that may end anywhere: inside an escape sequence, a character, a
// line. Whatever the pieces, the same is shown. The last lines are the screen: the cursor
// moves among them, as several progress bars want it; a line that has left the screen
// changes no more. What RQ itself writes at the beginning of an attempt clears the screen
// into what lies above, so that no attempt writes over an earlier one.
//
// What a script writes may be meant to harm: a line, its spans, the screen, and the work
// for each character that comes in are bounded.

import { visible } from "./visible.js";

const LINE_LIMIT = 16384; // characters of a line that are kept
const ROWS = 40; // lines of the screen
const SPAN_LIMIT = 1000; // changes of style in a line; the rest of it has the last one
const WIDTH = 512; // columns that the cursor goes beyond the end of what is written
const WORK = 4; // cells that sequences may touch for each character that came
const ESCAPE_LIMIT = 4096; // an escape sequence longer than this is text
const PLAIN = "";
const HELD = 16; // joiners, of which the character decides that comes next
const PAIR = /[\ud800-\udbff][\udc00-\udfff]/;
export const START = /^\d+ - \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ - RQ START - /;

export class Terminal {
  constructor() {
    this.rows = [new Line()];
    this.row = 0;
    this.style = { fg: null, bg: null, flags: new Set() };
    this.classes = PLAIN;
    this.rest = ""; // what is not complete yet: an escape sequence, a character
    this.before = ""; // the character that what comes next follows
  }

  get line() {
    return this.rows[this.row];
  }

  // Returns the lines that have left the screen; `rows` are those on it.
  write(text) {
    const done = [];
    let data = this.rest + text;
    const tail = unfinished(data);
    this.rest = data.slice(tail);
    data = data.slice(0, tail);
    let at = 0;
    while (at < data.length) {
      const special = nextSpecial(data, at);
      if (special > at) this.put(data.slice(at, special));
      if (special >= data.length) break;
      at = this.control(data, special, done);
      this.before = "";
      if (at < 0) {
        this.rest = data.slice(special) + this.rest;
        break;
      }
      this.line.earn(at - special);
    }
    return done;
  }

  // Nothing follows: what waited for more of its kind is what it is.
  end() {
    if (this.rest && this.rest[0] !== "\x1b") this.put(this.rest);
    this.rest = "";
  }

  put(text) {
    this.line.put(visible(text, this.before), this.classes);
    this.before = lastOf(text);
  }

  // Returns where to go on, -1 when the sequence needs more text.
  control(data, at, done) {
    switch (data[at]) {
      case "\n":
        this.newline(done);
        return at + 1;
      case "\r":
        // Alone at the end it may belong to a newline, or begin the next progress line.
        this.line.home();
        return at + 1;
      case "\b":
        this.line.back();
        return at + 1;
      case "\t":
        this.line.put("\t", this.classes);
        return at + 1;
      case "\x1b":
        return this.escape(data, at);
      default:
        if (data[at] === "\x07") return at + 1;
        this.line.put(visible(data[at]), this.classes);
        return at + 1;
    }
  }

  newline(done) {
    if (this.row === this.rows.length - 1) {
      const begins = START.test(this.line.spans[0]?.[0] ?? "");
      this.rows.push(new Line());
      this.row += 1;
      const over = begins ? this.row : Math.max(0, this.rows.length - ROWS);
      for (const line of this.rows.splice(0, over)) done.push(line);
      this.row -= over;
      return;
    }
    this.move(1);
    this.line.home();
  }

  // The cursor goes up and down within the screen, and stays in its column.
  move(rows) {
    const { at } = this.line;
    this.row = Math.min(Math.max(0, this.row + rows), this.rows.length - 1);
    this.line.home(at);
  }

  escape(data, at) {
    const kind = data[at + 1];
    if (kind === undefined) return -1;
    if (kind === "[") return this.csi(data, at);
    if (kind === "]" || kind === "P" || kind === "_" || kind === "^" || kind === "X") {
      return textual(data, at);
    }
    if ("()*+#%".includes(kind)) return data.length > at + 2 ? at + 3 : -1;
    return at + 2;
  }

  csi(data, at) {
    let end = at + 2;
    while (end < data.length && data[end] >= " " && data[end] <= "?") end += 1;
    if (end - at > ESCAPE_LIMIT) return at + 1;
    if (end >= data.length) return -1;
    this.sequence(data[end], data.slice(at + 2, end));
    return data[end] >= "@" && data[end] <= "~" ? end + 1 : end;
  }

  sequence(kind, args) {
    const count = Math.max(1, Number.parseInt(args, 10) || 1);
    if (kind === "m") this.sgr(args);
    else if (kind === "K") this.line.erase(args);
    else if (kind === "J") this.below(args);
    else if (kind === "G") this.line.home(count - 1);
    else if (kind === "D") this.line.back(count);
    else if (kind === "C") this.line.home(this.line.at + count);
    else if (kind === "A" || kind === "F") this.move(-count);
    else if (kind === "B" || kind === "E") this.move(count);
    if (kind === "E" || kind === "F") this.line.home();
  }

  // To erase the whole screen, as `clear` does, would hide what the file holds.
  below(how) {
    if (how !== "" && how !== "0") return;
    this.line.erase("");
    for (const line of this.rows.slice(this.row + 1)) line.clear();
  }

  sgr(args) {
    if (args.length > 256 || !/^[\d;:]*$/.test(args)) return;
    const codes = args.split(/[;:]/).map((one) => Number(one || 0));
    for (let index = 0; index < codes.length; index += 1) {
      index = this.code(codes, index);
    }
    this.classes = classesOf(this.style);
  }

  code(codes, index) {
    const code = codes[index];
    const { style } = this;
    if (code === 0) this.style = { fg: null, bg: null, flags: new Set() };
    else if (code in FLAGS) style.flags.add(FLAGS[code]);
    else if (code in UNFLAGS) for (const one of UNFLAGS[code]) style.flags.delete(one);
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 90 && code <= 97) style.fg = code - 82;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 100 && code <= 107) style.bg = code - 92;
    else if (code === 39) style.fg = null;
    else if (code === 49) style.bg = null;
    else if (code === 38 || code === 48) {
      const [color, last] = extended(codes, index);
      if (color !== null) style[code === 38 ? "fg" : "bg"] = color;
      return last;
    }
    return index;
  }
}

const FLAGS = { 1: "b", 2: "d", 3: "i", 4: "u", 7: "r", 8: "h", 9: "s" };
const UNFLAGS = { 22: ["b", "d"], 23: ["i"], 24: ["u"], 27: ["r"], 28: ["h"], 29: ["s"] };

// One of the 256 colours; true colour becomes the nearest of them.
function extended(codes, index) {
  if (codes[index + 1] === 5) {
    const color = codes[index + 2];
    return [color >= 0 && color < 256 ? color : null, index + 2];
  }
  if (codes[index + 1] === 2) {
    const [red, green, blue] = codes.slice(index + 2, index + 5);
    return [nearest(red, green, blue), index + 4];
  }
  return [null, index + 1];
}

export function nearest(red, green, blue) {
  if ([red, green, blue].some((one) => !(one >= 0 && one <= 255))) return null;
  const most = Math.max(red, green, blue);
  if (most - Math.min(red, green, blue) < 10) {
    if (most < 8) return 16;
    if (most > 246) return 231;
    return 232 + Math.min(23, Math.round((most - 8) / 10));
  }
  const level = (one) => (one < 48 ? 0 : one < 115 ? 1 : Math.min(5, Math.floor((one - 35) / 40)));
  return 16 + 36 * level(red) + 6 * level(green) + level(blue);
}

function classesOf({ fg, bg, flags }) {
  const found = [...flags].map((one) => `ansi-${one}`);
  if (fg !== null) found.push(`fg-${fg}`);
  if (bg !== null) found.push(`bg-${bg}`);
  return found.join(" ");
}

// Where the last character begins that is not complete, or of which the next one decides.
function unfinished(data) {
  let at = data.length;
  if (at && data.charCodeAt(at - 1) >= 0xd800 && data.charCodeAt(at - 1) < 0xdc00) at -= 1;
  while (at && data.length - at < HELD && "\u200c\u200d".includes(data[at - 1])) at -= 1;
  return at;
}

function nextSpecial(data, at) {
  for (let index = at; index < data.length; index += 1) {
    const code = data.charCodeAt(index);
    if (code < 32 || code === 127) return index;
  }
  return data.length;
}

// Titles, links (OSC 8) and the like end with BEL or ESC \; nothing of them is shown.
function textual(data, at) {
  const end = Math.min(data.length, at + ESCAPE_LIMIT + 1);
  for (let index = at + 2; index < end; index += 1) {
    if (data[index] === "\x07") return index + 1;
    if (data[index] === "\n") return index; // it never ended
    if (data[index] === "\x1b") {
      if (index + 1 >= data.length) return -1;
      return data[index + 1] === "\\" ? index + 2 : index;
    }
  }
  return data.length - at > ESCAPE_LIMIT ? at + 2 : -1;
}

// A line being written: characters can be written over, as progress bars do.
class Line {
  constructor() {
    this.clear();
    this.at = 0; // column of the cursor, which may be beyond what is kept
    this.work = WIDTH; // cells that may still be touched
  }

  clear() {
    this.spans = []; // [text, style], while nothing is written over
    this.cells = null; // characters and their styles, once something is
    this.length = 0; // characters that are kept
    this.end = 0; // characters that there are
    this.changed = true; // since it was shown last
  }

  put(text, style) {
    const [whole, room] = [widthOf(text), LINE_LIMIT - this.at];
    const kept = Math.min(whole, Math.max(room, 0));
    const end = this.at + whole;
    if (kept) this.keep(kept < whole ? sliced(text, kept) : text, kept, style);
    this.at = end;
    this.end = Math.max(this.end, end);
    this.changed = true;
  }

  keep(text, width, style) {
    this.earn(width);
    if (this.at > this.length) this.pad();
    if (this.at === 0 && width >= this.length) {
      const { end } = this;
      this.clear();
      this.end = end;
    }
    if (this.at === this.length && !this.cells) this.append(text, width, style);
    else this.over(text, style);
  }

  append(text, width, style) {
    add(this.spans, text, style);
    this.length += width;
    this.at = this.length;
  }

  // A character is a cell, both halves of it.
  over(text, style) {
    const { characters, styles } = this.spread();
    for (const character of text) {
      characters[this.at] = character;
      styles[this.at] = style;
      this.at += 1;
    }
    this.length = characters.length;
  }

  // Up to where the cursor was moved, beyond the end.
  pad() {
    const at = this.pay(this.at - this.length) ? this.at : this.length;
    const blanks = " ".repeat(at - this.length);
    this.at = this.length;
    if (this.cells) this.over(blanks, PLAIN);
    else if (blanks) this.append(blanks, blanks.length, PLAIN);
  }

  spread() {
    this.cells ??= {
      characters: this.spans.flatMap(([text]) => [...text]),
      styles: this.spans.flatMap(([text, style]) => Array(widthOf(text)).fill(style)),
    };
    return this.cells;
  }

  // Each character that comes pays for a few cells; who has spent all moves no more.
  earn(characters) {
    this.work = Math.min(this.work + WORK * characters, WORK * LINE_LIMIT);
  }

  pay(cells) {
    if (cells > this.work) return false;
    this.work -= cells;
    return true;
  }

  home(column = 0) {
    const furthest = Math.min(Math.max(this.length, WIDTH), LINE_LIMIT);
    this.at = Math.min(Math.max(column || 0, 0), furthest);
  }

  back(steps = 1) {
    this.at = Math.max(0, this.at - (steps || 1));
  }

  erase(how) {
    if (how === "2" || (how !== "1" && this.at === 0)) this.clear();
    else if (how === "1") this.blank(Math.min(this.at + 1, this.length));
    else if (this.at < this.length) this.shorten();
  }

  blank(cells) {
    if (!this.pay(cells)) return;
    const { characters, styles } = this.spread();
    characters.fill(" ", 0, cells);
    styles.fill(PLAIN, 0, cells);
    this.changed = true;
  }

  shorten() {
    const { characters, styles } = this.spread();
    characters.length = styles.length = this.length = this.end = this.at;
    this.changed = true;
  }

  value() {
    const cut = Math.max(0, this.end - LINE_LIMIT);
    return { spans: this.cells ? joined(this.cells) : this.spans, cut };
  }
}

function joined({ characters, styles }) {
  const spans = [];
  let first = 0;
  for (let at = 1; at <= styles.length; at += 1) {
    if (styles[at] === styles[first]) continue;
    add(spans, characters.slice(first, at).join(""), styles[first]);
    first = at;
  }
  return spans;
}

function add(spans, text, style) {
  const last = spans.at(-1);
  if (last && (last[1] === style || spans.length >= SPAN_LIMIT)) last[0] += text;
  else spans.push([text, style]);
}

function widthOf(text) {
  return PAIR.test(text) ? [...text].length : text.length;
}

function sliced(text, width) {
  return PAIR.test(text) ? [...text].slice(0, width).join("") : text.slice(0, width);
}

function lastOf(text) {
  return PAIR.test(text.slice(-2)) ? text.slice(-2) : text.slice(-1);
}
