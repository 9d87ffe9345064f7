// JavaScript that calls C, which calls JavaScript, which calls C: node mixed_node.js ADDON SECONDS [throws].
// With `throws` the innermost C throws through all of that; before anybody catches it C is called once more, and after.
'use strict';
const addon = require(process.argv[2]);

function inner() {
  addon.spin();
}

function failing() {
  try {
    addon.fail();
  } finally {
    cleanup();
  }
}

function cleanup() {
  addon.spin();
}

function caught() {
  addon.spin();
}

function outer(depth, callback) {
  if (depth > 0) return outer(depth - 1, callback) + 1;
  addon.enter(callback);
  return 0;
}

function main(seconds, throws) {
  const end = Date.now() + seconds * 1000;
  while (Date.now() < end) {
    try {
      outer(3, throws ? failing : inner);
      if (throws) throw new Error('nothing was thrown');
    } catch (error) {
      if (error.message !== 'thrown by the add-on') throw error;
      caught();
    }
  }
}

main(Number(process.argv[3]), process.argv[4] === 'throws');
