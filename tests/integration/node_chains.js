// Functions that come and go, for a profiler of node: "inner_7" is only ever called by "middle_7", that by "outer_7".
// Usage: node node_chains.js SECONDS
'use strict';
const seconds = Number(process.argv[2]);
const begin = process.cpuUsage().user;
const used = () => (process.cpuUsage().user - begin) / 1e6;
let sum = 0;
for (let generation = 0; used() < seconds; ++generation) {
  const outer = new Function(`
    function inner_${generation}(n) { let s = 0; for (let i = 0; i < n; ++i) s += i % 7; return s; }
    function middle_${generation}(n) { return inner_${generation}(n) + 1; }
    return function outer_${generation}(n) { return middle_${generation}(n) + 1; };`)();
  const end = used() + 0.02;
  do for (let i = 0; i < 100; ++i) sum += outer(2000);
  while (used() < end);
}
console.log(sum > 0 ? 'done' : '');
