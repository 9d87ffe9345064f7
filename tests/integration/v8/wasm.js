// WebAssembly whose chains of calls are known, put together here. Usage: node wasm.js stack|work|step [SECONDS]
'use strict';
const fs = require('fs');
const leb = (n) => {
  const bytes = [];
  for (; n > 127; n >>>= 7) bytes.push((n & 127) | 128);
  return [...bytes, n];
};
const text = (s) => [...leb(s.length), ...Buffer.from(s)];
const list = (items) => [...leb(items.length), ...items.flat()];
const section = (id, bytes) => [id, ...leb(bytes.length), ...bytes];
const I32 = 0x7f, END = 0x0b;
const get = (i) => [0x20, i], number = (n) => [0x41, n], call = (i) => [0x10, i];
const ADD = 0x6a, SUB = 0x6b, MULTIPLY = 0x6c, DIVIDE = 0x6d, ZERO = 0x45, LESS = 0x48, XOR = 0x73;
const choose = (condition, yes, no) => [...condition, 0x04, I32, ...yes, 0x05, ...no, END];
const less = (i) => [...get(i), ...number(1), SUB];

const kMany = 12;  // arguments: more than there are registers for
const has_tail_calls = Number(process.versions.node.split('.')[0]) >= 22;
const types = [[[I32], [I32]], [Array(kMany).fill(I32), [I32]]];
const functions = [];  // name, type, locals, code
const index = {js: 0};
for (const name of ['spin', 'left', 'right', 'many', 'tail', 'longer', 'indirect', 'divide', 'small'])
  index[name] = Object.keys(index).length;
const add = (name, type, code, locals = []) => functions.push([name, type, locals, code]);
// Of these every stack is left, right, left, ... with spin at the end.
add('spin', 0, [
  ...number(60), 0x21, 1, 0x03, 0x40, ...get(2), ...number(31), MULTIPLY, ...get(1), XOR, 0x21, 2,
  ...less(1), 0x22, 1, 0x0d, 0, END, ...get(2), ...call(index.small)], [[2, I32]]);
add('left', 0, choose([...get(0), ZERO], [...get(0), ...call(index.spin)],
                      [...less(0), ...call(index.right), ...number(1), ADD]));
add('right', 0, choose([...get(0), ZERO], [...get(0), ...call(index.js)],
                       [...less(0), ...call(index.left), ...number(2), ADD]));
const others = Array.from({length: kMany - 1}, (_, i) => get(i + 1)).flat();
add('many', 1, choose([...get(0), ZERO], [...get(kMany - 1), ...call(index.left)],
                      [...less(0), ...others, ...call(index.many), ...get(kMany - 2), ADD]));
// A tail call takes the caller's arguments off the stack and leaves its own there.
const tail_call = (i) => (has_tail_calls ? [0x12, i] : call(i));
add('tail', 0, choose([...get(0), ...number(1), LESS], get(0), [...less(0), ...Array(kMany - 1).fill(number(3)).flat(), ...tail_call(index.longer)]));
add('longer', 1, choose([...get(0), ...number(1), LESS], get(kMany - 1), [...less(0), ...tail_call(index.tail)]));
add('indirect', 0, [...get(0), ...get(0), ...number(1), 0x71, 0x11, 0, 0]);
add('divide', 0, [...number(7), ...get(0), DIVIDE]);
add('small', 0, [...get(0), ...number(1), ADD]);

const bytes = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  ...section(1, list(types.map(([from, to]) => [0x60, ...list(from.map((t) => [t])), ...list(to.map((t) => [t]))]))),
  ...section(2, list([[...text('e'), ...text('js'), 0, 0]])),
  ...section(3, list(functions.map(([, type]) => [type]))),
  ...section(4, list([[0x70, 0, 2]])),
  ...section(7, list(functions.map(([name], i) => [...text('exported_' + name), 0, i + 1]))),
  ...section(9, list([[0, ...number(0), END, ...list([[index.left], [index.left]])]])),
  ...section(10, list(functions.map(([, , locals, code]) => {
    const body = [...list(locals), ...code, END];
    return [...leb(body.length), ...body];
  }))),
  ...section(0, [...text('name'), ...section(0, text('known')),
                 ...section(1, list(functions.map(([name], i) => [i + 1, ...text(name)])))]),
]);

const sites = () => {
  Error.stackTraceLimit = 200;
  Error.prepareStackTrace = (_, stack) => stack;
  return new Error().stack.slice(1);
};
let mode = 'warm';
function bottom(n) {
  if (mode === 'stack') {
    const lines = sites().map((s) => `${s.getFunctionName()}\t${s.getFileName()}\t${s.getLineNumber()}`);
    fs.writeSync(1, lines.join('\n') + '\nREADY\n');
    for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
  return n + 1;
}
const made = new WebAssembly.Instance(new WebAssembly.Module(bytes), {e: {js: bottom}}).exports;
const tens = Array(kMany - 1).fill(10);
function work() {
  let sum = 0;
  for (let i = 0; i < 20; ++i) {
    sum += made.exported_left(i) + made.exported_many(i, ...tens) + made.exported_tail(i) + made.exported_indirect(i);
    try { sum += made.exported_divide(i); } catch (e) { sum += e.message.length; }
  }
  return sum;
}

const seconds = Number(process.argv[3] ?? 1);
const used = () => process.cpuUsage().user / 1e6;
const end = used() + seconds;
while (used() < end) work();
mode = process.argv[2];
if (mode === 'stack') made.exported_many(3, ...Array(kMany - 2).fill(5), 7);
if (mode === 'step') {
  fs.writeSync(1, 'READY\n');
  for (;;) work();
}
