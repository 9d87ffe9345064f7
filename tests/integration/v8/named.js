// Four functions in a known nesting, until so many seconds have passed.
'use strict';

function namedLeaf(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum = (sum * 31 + i) | 0;
  return sum;
}
function namedMiddle(n) {
  let sum = 0;
  for (let i = 0; i < 20; i++) sum ^= namedLeaf(n + i);
  return sum;
}
function namedOuter(n) {
  let sum = 0;
  for (let i = 0; i < 20; i++) sum ^= namedMiddle(n);
  return sum;
}
let sum = 0;
function namedMain(until) {
  while (Date.now() < until) sum ^= namedOuter(500);
}
namedMain(Date.now() + 1000 * Number(process.argv[2]));
