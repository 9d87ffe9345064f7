// Reads a profile with the npm package pprof-format and prints what it says, one fact a line, for test_pprof_peer.
// usage: node read_pprof.js PACKAGE_DIRECTORY FILE
"use strict";
const { Profile } = require(process.argv[2]);
const bytes = require("zlib").gunzipSync(require("fs").readFileSync(process.argv[3]));
const p = Profile.decode(bytes);
const s = (i) => p.stringTable.strings[Number(i)];
console.log("types " + p.sampleType.map((t) => s(t.type) + "/" + s(t.unit)).join(" "));
console.log("default " + s(p.defaultSampleType));
console.log("period " + s(p.periodType.type) + "/" + s(p.periodType.unit) + " " + p.period);
console.log("time " + p.timeNanos + " duration " + p.durationNanos);
for (const c of p.comment) console.log("comment " + s(c));
for (const m of p.mapping) console.log(`mapping ${s(m.filename)} ${s(m.buildId)} ${m.memoryStart} ${m.memoryLimit} ${m.fileOffset}`);
const functions = new Map(p.function.map((f) => [Number(f.id), f]));
const locations = new Map(p.location.map((l) => [Number(l.id), l]));
for (const sample of p.sample) {
  const stack = sample.locationId.map((id) => {
    const location = locations.get(Number(id));
    return location.line.map((line) => s(functions.get(Number(line.functionId)).name) + ":" + line.line).join("<") +
           "@" + location.address;
  });
  const labels = sample.label.map((l) => s(l.key) + "=" + (Number(l.str) ? s(l.str) : l.num)).join(" ");
  console.log(`sample ${sample.value.join("/")} ${labels} | ${stack.join(";")}`);
}
