// Chains of calls that are known, for what walks node's stacks. Usage: node chains.js stack|work|step [SECONDS]
'use strict';
const fs = require('fs');
const sites = (limit) => {
  const before = [Error.prepareStackTrace, Error.stackTraceLimit];
  Error.stackTraceLimit = limit;
  Error.prepareStackTrace = (_, stack) => stack;
  const found = new Error().stack;
  [Error.prepareStackTrace, Error.stackTraceLimit] = before;
  return found.slice(1);
};
let mode = 'warm';
function bottom(n) {
  if (mode === 'stack') {
    const text = sites(200).map((s) => `${s.getFunctionName()}\t${s.getFileName()}\t${s.getLineNumber()}`).join('\n');
    fs.writeSync(1, text + '\nREADY\n');
    for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
  return n + 1;
}
function spread(n) { return bottom(...[n]); }
class Shape {
  constructor(n) { this.n = n; this.area = this.inner(n); }
  inner(n) { return spread(n) * 2; }
  get size() {
    return new Shape(this.n === undefined ? 1 : this.n).area;
  }
  static of(n) { return Object.create(Shape.prototype, { n: { value: n } }).size; }
}
function* counting(n) {
  yield Shape.of(n);
}
const arrow = (n) => counting(n).next().value;
function viaApply(n) { return Reflect.apply(arrow, null, [n]) + 1; }
function viaCall(n) { return viaApply.call(null, n); }
const bound = viaCall.bind(null);
function viaMap(n) {
  return [n].map((x) => bound(x))[0];
}
function viaSort(n) {
  let sum = 0;
  [2, 1].sort((a, b) => { if (sum === 0) sum = viaMap(n); return a - b; });
  return sum;
}
function viaReplace(n) { return Number('a'.replace(/a/, () => String(viaSort(n)))); }
const made = new Function('f', 'n', 'return f(n) + 1;\n//# sourceURL=made.js');
function top(n) { return made(viaReplace, n); }

// Of these every stack is left, right, left, ... with spin at the end.
function spin(n) { let s = 0; for (let i = 0; i < n; ++i) s = (s * 31 + i) % 65521; return s; }
function left(depth, n) { return depth === 0 ? spin(n) : right(depth - 1, n) + 1; }
function right(depth, n) { return depth === 0 ? spin(n) : left(depth - 1, n) + 2; }

function allocate(n) {
  const all = [];
  for (let i = 0; i < n; ++i) all.push({ i, text: 'a' + i, nested: [i, i + 0.5] });
  return all.length;
}
function texts(n) { return JSON.stringify(JSON.parse(JSON.stringify({ n, a: [1, 2, { b: 'c' + n }] }))).split(',').join(''); }
function collections(n) {
  const map = new Map();
  for (let i = 0; i < 20; ++i) map.set('k' + ((n * 7 + i) % 50), i);
  return [...map.keys()].filter((k) => /k[1-4]/.test(k)).length;
}
function thrown(n) {
  try { if (n % 2 === 0) throw new RangeError('even'); return 1; } catch (e) { return 2; } finally { n += 1; }
}
function work() {
  let sum = 0;
  for (let i = 0; i < 20; ++i) {
    sum += left(i, 200) + top(i) + allocate(20) + texts(i).length + collections(i) + thrown(i);
  }
  return sum;
}

const seconds = Number(process.argv[3] || 1);
const used = () => process.cpuUsage().user / 1e6;
const end = used() + seconds;
while (used() < end) work();
mode = process.argv[2];
if (mode === 'stack') top(1);
if (mode === 'step') {
  fs.writeSync(1, 'READY\n');
  for (;;) work();
}
