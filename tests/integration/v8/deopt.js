// Optimised functions that are left for good all the time, by values that they were not made for and by what they call.
// Usage: node --allow-natives-syntax deopt.js
'use strict';
const fs = require('fs');
const one = {x: 1}, other = {y: 1, x: 2};
let lazy;
function leave(o, n) {
  if (n < 0) %DeoptimizeFunction(lazy);
  return o.x + n;
}
%NeverOptimizeFunction(leave);
function optimise(f) {
  %PrepareFunctionForOptimization(f);
  f(one, 1);
  f(one, 2);
  %OptimizeFunctionOnNextCall(f);
  return f(one, 3);
}
function left(f, depth, ...more) { return depth === 0 ? f(...more) : right(f, depth - 1, ...more) + 1; }
function right(f, depth, ...more) { return depth === 0 ? f(...more) : left(f, depth - 1, ...more) + 2; }
function work(i) {
  const eager = new Function('o', 'n', `return o.x + n + ${i}`);
  lazy = new Function('leave', `return function lazy(o, n) { return leave(o, n) + ${i}; }`)(leave);
  optimise(eager);
  optimise(lazy);
  return left(eager, i % 7, other, 1) + left(lazy, i % 5, one, -1, ...Array(i % 20).fill(i));
}
for (let i = 0;; ++i) {
  work(i);
  if (i === 20) fs.writeSync(1, 'READY\n');
}
