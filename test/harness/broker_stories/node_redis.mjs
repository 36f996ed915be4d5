// What node-redis does with a broker: `node node_redis.mjs PORT RESP MODULES`, as
// redis_py.py is used.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import readline from "node:readline";

const [port, resp, modules] = process.argv.slice(2);
const { createClient, RESP_TYPES } = createRequire(`${modules}/`)("redis");
const BODY = Buffer.from("\x80body\r\n\0", "latin1");
const NAME = Buffer.from("\0\xff queue", "latin1");
const AS_BYTES = { [RESP_TYPES.BLOB_STRING]: Buffer };

const client = createClient({
  RESP: Number(resp),
  socket: { port: Number(port), reconnectStrategy: 50 },
});
const troubles = [];
client.on("error", (error) => troubles.push(error));
const ask = (...words) =>
  client.sendCommand(words.map((word) => (Buffer.isBuffer(word) ? word : String(word))));
const bytes = (...words) =>
  client.sendCommand(
    words.map((word) => (Buffer.isBuffer(word) ? word : String(word))),
    { typeMapping: AS_BYTES },
  );
const refused = (why, ...words) => assert.rejects(ask(...words), (error) => error.message.includes(why));

await client.connect();
assert.equal(await client.ping(), "PONG");

// Jobs.
const job = await ask("ADDJOB", NAME, BODY, 0, "RETRY", 60);
assert.match(job, /^D-[0-9a-f]{8}-.{24}-05a1$/);
const [[queue, , body]] = await bytes("GETJOB", "FROM", NAME);
assert.deepEqual([queue, body], [NAME, BODY]);
assert.equal(await ask("WORKING", job), 60);
assert.equal(await ask("NACK", job), 1);
assert.equal(await ask("QLEN", NAME), 1);
const [counted] = await ask("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", NAME);
assert.deepEqual(counted.slice(3), ["nacks", 1, "additional-deliveries", 0]);
assert.equal((await ask("SHOW", job)).length, 30);
assert.equal(await ask("ACKJOB", job), 1);
assert.equal(await ask("SHOW", job), null);
assert.equal(await ask("GETJOB", "NOHANG", "FROM", NAME), null);

// One client waits, another one sends.
const waiter = client.duplicate();
waiter.on("error", (error) => troubles.push(error));
await waiter.connect();
const waits = waiter.sendCommand(["GETJOB", "TIMEOUT", "15000", "FROM", "late"]);
const late = await ask("ADDJOB", "late", "x", 0);
assert.deepEqual(await waits, [["late", late, "x"]]);
waiter.destroy();

// RedisRQ and bananaq.
const ids = await ask("RQ.PUSH", "k", "one", "two");
assert.deepEqual(await ask("RQ.POP", "COUNT", 2, "k"), [
  ["k", ids[0], "one"],
  ["k", ids[1], "two"],
]);
assert.deepEqual(await ask("RQ.ACK", "k", ...ids), ids);
assert.deepEqual(await ask("RQ.INFO", "k"), ["undelivered", 0, "delivered", 0]);
const event = await ask("QADD", "e", 60, "x");
assert.deepEqual(await ask("QGET", "e", "g"), [event, "x"]);
assert.equal(await ask("QACK", "e", "g", event), 1);
assert.equal(await ask("QGET", "e", "g"), null);

// Commands of one moment leave in one packet; one that fails spoils no other.
const many = Array.from({ length: 500 }, (_, n) => ask("ADDJOB", "many", n, 0));
await refused("BADID", "ACKJOB", "x");
const added = await Promise.all(many);
const taken = await ask("GETJOB", "COUNT", 500, "FROM", "many");
assert.deepEqual(taken.map(([, id]) => id), added);
assert.deepEqual(taken.map(([, , text]) => Number(text)), [...added.keys()]);
assert.equal(await ask("ACKJOB", ...added), 500);

await refused("unknown command", "LPUSH", "a", "b");
await refused("wrong number of arguments", "QLEN");
await refused("NOJOB", "WORKING", job);

// The broker is killed; the same client goes on.
assert.deepEqual(troubles, []);
const kept = await ask("ADDJOB", "kept", BODY, 0, "RETRY", 600);
console.log("kill");
const lines = readline.createInterface({ input: process.stdin });
await new Promise((resolve) => lines.once("line", resolve));
lines.close();
const [[, again]] = await ask("GETJOB", "FROM", "kept");
assert.equal(again, kept);
assert.equal(await ask("ACKJOB", kept), 1);
client.destroy();
console.log("done");
process.exit(0);
