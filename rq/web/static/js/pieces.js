// How a log is cut into pieces that are loaded one after the other. What is shown is what
// the file holds, so a piece begins where a view can begin without half of anything:
// with a whole line; in a line that has no end there, where it is written over first; else
// with a whole character. The bytes before belong to the piece before. rq/web/livelog.py
// has the same rule; a test compares the two.

const NEWLINE = 10;
const RETURN = 13;
const HOLE = /\0{4096,}/g; // what `log_bytes` took out of the middle reads as zeros

export function lineStart(bytes) {
  const last = bytes.length - 1;
  const newline = bytes.indexOf(NEWLINE);
  if (newline >= 0 && newline < last) return newline + 1;
  const over = bytes.indexOf(RETURN);
  if (over >= 0 && over < last && bytes[over + 1] !== NEWLINE) return over + 1;
  let inside = 0;
  while (inside < Math.min(3, bytes.length) && (bytes[inside] & 0xc0) === 0x80) inside += 1;
  return inside;
}

export function textOf(bytes) {
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  return text.replace(HOLE, (hole) => `\n… ${hole.length.toLocaleString("en")} bytes are left out here …\n`);
}
