// Asks `windlass mcp` by npm's own client, which checks each answer against the schemas, and prints what it has checked.
// client.mjs COMMAND PROFILE
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { strict as assert } from "node:assert";

const [command, profile] = process.argv.slice(2);

async function connect(...options) {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StdioClientTransport({ command, args: ["mcp", ...options] }));
  return client;
}

async function ask(client, name, args = {}) {
  const answer = await client.callTool({ name, arguments: args });
  assert(!answer.isError, `${name}: ${JSON.stringify(answer)}`);
  assert.deepEqual(JSON.parse(answer.content[0].text), answer.structuredContent, name);
  return answer.structuredContent;
}

const client = await connect(profile);
assert.equal(client.getServerVersion().name, "windlass");
await client.ping();
const { tools } = await client.listTools();
assert(tools.every((tool) => tool.annotations.readOnlyHint));
const names = tools.map((tool) => tool.name);
assert.deepEqual(names, ["open_profile", "top_functions", "callers", "callees", "call_tree", "processes", "diff", "annotate", "walk"]);

const opened = await ask(client, "open_profile", { file: profile });
assert(opened.samples > 0);
const top = await ask(client, "top_functions", { limit: 2 });
assert.equal(top.functions.length, 2);
assert.equal(top.samples, opened.samples);
const name = top.functions[0].function;
const callers = await ask(client, "callers", { function: name });
assert.equal(callers.total, top.functions[0].total);
assert.equal(callers.callers.reduce((sum, row) => sum + row.total, 0), callers.total);
const tree = await ask(client, "call_tree", { limit: 3 });
assert.equal(tree.nodes[0].depth, 0);
await ask(client, "callees", { function: callers.callers[0].function });
await ask(client, "annotate", { function: name, limit: 5 });
const processes = await ask(client, "processes");
const pid = processes.processes[0].pid;
const narrowed = await ask(client, "top_functions", { process: [String(pid)] });
assert.equal(narrowed.samples, processes.processes[0].sum);
const diff = await ask(client, "diff", { a: profile, b: profile });
assert.equal(diff.diff.differing, 0);
const walked = await ask(client, "walk", { pid: process.pid, frames: 3 });
assert(walked.threads.length > 1 && walked.threads[0].frames.length <= 3);

const none = await client.callTool({ name: "callers", arguments: { function: "no such function" } });
assert(none.isError && none.content[0].text.includes("no such function"));
await assert.rejects(client.callTool({ name: "record", arguments: {} }), /no such tool/);
await client.close();

const recorder = await connect("--allow-record");
const listed = (await recorder.listTools()).tools.find((tool) => tool.name === "record");
assert.equal(listed.annotations.readOnlyHint, false);
await recorder.close();
console.log(`${names.length} tools, ${opened.samples} samples, ${walked.threads.length} threads`);
