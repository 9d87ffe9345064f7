'use strict';
// CPU time of a program of fixed work under profilers of npm, at 100 samples a second. Prints seconds of CPU.
// usage: npm install @datadog/pprof @pyroscope/nodejs; TOOL=datadog|pyroscope|"" [ROUNDS=300] [OUT=FILE] node npm_profilers.js
// Beside them: windlass record -F 100 -- node npm_profilers.js
const crypto = require('crypto'), fs = require('fs'), zlib = require('zlib');
const block = Buffer.alloc(1 << 19, 'abcdefghij');
function fold(n) { return n < 2 ? n : fold(n - 1) + fold(n - 2); }
function deep(n) { return n === 0 ? fold(24) : deep(n - 1) + 1; }
function parse() { return JSON.parse(JSON.stringify(Array.from({length: 3000}, (_, i) => ({i, text: 'x' + i})))).length; }
function order() { return Array.from({length: 20000}, (_, i) => (i * 7919) % 20011).sort((a, b) => a - b)[5]; }
function hash() { return crypto.createHash('sha256').update(block).digest('hex'); }
function pack() { return zlib.gzipSync(block, {level: 6}).length; }

function start(tool) {
  if (tool === 'datadog') {
    const pprof = require('@datadog/pprof');
    pprof.time.start({durationMillis: 600000, intervalMicros: 10000});
    return pprof;
  }
  if (tool === 'pyroscope') {
    const pyroscope = require('@pyroscope/nodejs').default;
    pyroscope.init({serverAddress: process.env.SERVER || 'http://127.0.0.1:4040', appName: 'work', wall: {collectCpuTime: true, samplingIntervalMicros: 10000}});
    pyroscope.startWallProfiling();
  }
  return null;
}

async function main() {
  const pprof = start(process.env.TOOL);
  for (let i = 0; i < Number(process.env.ROUNDS || 300); ++i) {
    deep(60); parse(); order(); hash(); pack();
    if (i % 20 === 0) await new Promise(setImmediate);
  }
  if (pprof && process.env.OUT) fs.writeFileSync(process.env.OUT, await pprof.encode(pprof.time.stop()));
  const used = process.cpuUsage();
  console.log(`${process.env.TOOL || 'none'}: ${((used.user + used.system) / 1e6).toFixed(2)} s of CPU`);
  process.exit(0);
}
main();
