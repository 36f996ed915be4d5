// Characters that cannot be seen, or that turn the order of letters round, become their
// number: `<U+202E>`. The same list as in rq/words/visible.py; a test compares the two.

const INVISIBLE =
  /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|\r(?!\n)/gu;
// Between these ZWNJ and ZWJ are spelling, and between pictures ZWJ makes one of both.
const LETTERS =
  "\\u0620-\\u0669\\u066e-\\u06ff\\u0710-\\u07fa\\u0840-\\u109f\\u1780-\\u17d3\\ufb50-\\ufefc";
const PICTURES = "\\u2190-\\u21ff\\u2600-\\u27bf\\u2b00-\\u2bff\\u{1f000}-\\u{1faff}";
const JOINED = new RegExp(
  `[${LETTERS}][\\u200c\\u200d][${LETTERS}]|[${PICTURES}\\ufe0f]\\u200d[${PICTURES}]`,
  "u",
);

// `before`: the character that the text follows, if it is a piece of a longer one.
export function visible(text, before = "") {
  const around = before + text; // made once: there may be as many joiners as characters
  return text.replace(INVISIBLE, (character, at) => {
    if (character === "\u200c" || character === "\u200d") {
      const place = before.length + at;
      if (JOINED.test(ahead(around, place) + around.slice(place, place + 3))) return character;
    }
    const number = character.codePointAt(0).toString(16).toUpperCase();
    return `<U+${number.padStart(4, "0")}>`;
  });
}

// A text in which no letter has more marks than this: to lay out thousands of them takes a
// browser minutes. Those beyond become their numbers. rq/words/visible.py has the same rule.
const CROWD = /(\p{M}{30})(\p{M}+)/gu;

export function thinned(text) {
  return text.replace(CROWD, (_, kept, more) => {
    const numbers = [...more].map((mark) => mark.codePointAt(0).toString(16).toUpperCase());
    return kept + numbers.map((number) => `<U+${number.padStart(4, "0")}>`).join("");
  });
}

// The character before a place, both halves of it.
function ahead(text, place) {
  const low = text.charCodeAt(place - 1);
  return text.slice(Math.max(0, low >= 0xdc00 && low <= 0xdfff ? place - 2 : place - 1), place);
}
