// Characters that cannot be seen, or that turn the order of letters round, become their
// number: `<U+202E>`. The same list as in rq/visible.py; a test compares the two.

const INVISIBLE =
  /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|\r(?!\n)/gu;

export function visible(text) {
  return text.replace(INVISIBLE, (character) => {
    const number = character.codePointAt(0).toString(16).toUpperCase();
    return `<U+${number.padStart(4, "0")}>`;
  });
}
