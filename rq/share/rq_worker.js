// Long-lived workers in Node.
//
//   const { messages } = require(process.env.RQ_SHARE + "/rq_worker.js");
//   (async () => {
//     for await (const message of messages()) {
//       message.run("halfway");
//       message.done(`hello ${message.env.RQ_PARAM1}`);
//     }
//   })();
//
// The working directory is that of the message, if it has one.

"use strict";
const fs = require("fs");
const net = require("net");
const readline = require("readline");

function say(word, text) {
  fs.writeSync(3, `${word} ${String(text).split(/\s+/).join(" ")}`.trim() + "\n");
}

class Message {
  // `env` has the values that another script finds in its environment.
  constructor(env, lines) {
    this.env = env;
    this._lines = lines;
  }
  run(text) { say("run", text); }
  done(text = "") { say("done", text); }
  result(text) { say("result", text); }
  relayed(text = "") { say("relayed", text); }
  err(text = "") { say("err", text); }
  resend(seconds, reason = "") { say("resend", `${seconds}-${reason}`); }

  // Copies it to another queue; gives the full id.
  async dup(dest, seconds = 0) {
    say("dup", `${seconds}-X-${dest}`);
    const { value } = await this._lines.next();
    const [, word, text] = /^(\S+) (.*)$/.exec(value);
    if (word !== "ok") throw new Error(text);
    return text;
  }
}

// Gives message after message, until the queue wants this worker to end.
async function* messages() {
  const input = new net.Socket({ fd: 4, readable: true, writable: false });
  const lines = readline.createInterface({ input })[Symbol.asyncIterator]();
  for (;;) {
    say("ready", "");
    const { value, done } = await lines.next();
    if (done) return;
    const message = new Message(JSON.parse(value), lines);
    process.chdir(message.env.RQ_MSG_DIR || "/");
    yield message;
  }
}

module.exports = { messages };
