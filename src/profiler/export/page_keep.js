
// ---- newer data ----------------------------------------------------------------------------------------------------
// Nodes and frames have other numbers in newer data. A box is found again by the functions on the way to it.
function frameKey(of, id) {
  const { kind, name, module } = of.frames[id];
  return JSON.stringify([kind, name, module === undefined ? "" : of.modules[module].path]);
}
function frameKept(before, id) {
  const wanted = frameKey(before.names, id);
  return names.frames.findIndex((frame, i) => frameKey(names, i) === wanted);
}
// Inlined calls may have come between: the nearest node of the function below `from`, or -1.
function nodeBelow(from, frame) {
  for (let level = [from]; level.length; ) {
    const next = [];
    for (const node of level)
      for (let i = node + 1; i < table.ends[node]; i = table.ends[i]) {
        if (table.frame[i] === frame) return i;
        next.push(i);
      }
    level = next;
  }
  return -1;
}
// The key of a box of the data before ("12"; "4.7.1" among callers), in these; of the last box on the way that is there.
function boxKept(before, key) {
  if (!/^\d+(\.\d+)*$/.test(key)) return "";
  if (key.includes(".") || before.callers) return callersKept(before, key);
  const path = [];
  for (let node = Number(key); node > 0 && node < before.table.nodes; node = before.table.parent[node]) path.unshift(before.table.frame[node]);
  let at = 0;
  for (const frame of path) {
    const kept = frameKept(before, frame), next = kept < 0 ? -1 : nodeBelow(at, kept);
    if (next < 0) break;
    at = next;
  }
  return at ? String(at) : "";
}
function callersKept(before, key) {
  const kept = key.split(".").map((id) => frameKept(before, Number(id))), gone = kept.indexOf(-1);
  return kept.slice(0, gone < 0 ? kept.length : gone).join(".");
}
