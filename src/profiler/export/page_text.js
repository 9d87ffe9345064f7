"use strict";
// What the page's scripts share: elements, numbers and names as text, colours.
const KIND = { FUNCTION: 0, UNNAMED: 1, COMM: 2, TRUNCATED: 3 };
const $ = (id) => document.getElementById(id);
const element = (tag, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};
let names, value;  // of the profile; what is shown of it

// ---- numbers -------------------------------------------------------------------------------------------------------
const count = (n) => n.toLocaleString("en-US");
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const BYTES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const SCALES = { nanoseconds: 1, microseconds: 1e3, milliseconds: 1e6, seconds: 1e9, bytes: 1 };
// In the value's unit: "1.23 ms", "12 samples".
function amount(n) {
  const scale = SCALES[value.unit];
  if (!scale) return `${count(n)} ${value.unit === "count" ? value.value : value.unit}`;
  const steps = value.unit === "bytes" ? BYTES : TIMES, real = n * scale;
  const [size, unit] = steps.find(([least]) => real >= least) || steps[steps.length - 1];
  const part = real / size;
  return `${size === 1 ? real : part.toFixed(part < 9.995 ? 2 : part < 99.95 ? 1 : 0)} ${unit}`;
}
const plain = (n) => value.unit === "count" ? count(n) : amount(n);  // without the value's name
const share = (n, all) => (all ? 100 * n / all : 0).toFixed(2) + "%";

// ---- names ---------------------------------------------------------------------------------------------------------
const ALL = -1, NARROWER = -2;  // boxes that are no frame
const nameOf = (frame) => frame === ALL ? "all" : frame === NARROWER ? "(narrower functions)" : names.frames[frame].name;
const moduleOf = (frame) => frame >= 0 ? names.modules[names.frames[frame].module] : undefined;
// "libc.so.6", "libc.so.6 +1" of a function that two modules have.
function moduleText(frame) {
  const module = moduleOf(frame), { modules } = names.frames[frame];
  return module ? module.name + (modules ? ` +${modules.length - 1}` : "") : "";
}
const isCode = (frame) => frame >= 0 && (names.frames[frame].kind === KIND.FUNCTION || names.frames[frame].kind === KIND.UNNAMED);
function withoutTemplateArguments(name) {
  let result = "", depth = 0;
  for (let i = 0; i < name.length; i++) {
    const c = name[i], isOperator = result.endsWith("operator") || (depth === 0 && result.endsWith("operator<"));
    if (c === "<" && !isOperator && ++depth === 1) result += "<…>";
    if (depth === 0) result += c;
    if (c === ">" && depth > 0 && name[i - 1] !== "-") depth--;
  }
  return depth === 0 ? result : name;
}
// As many of the last parts of a::b::c as fit, one at least, without a return type. "[unknown]" is no such name.
const NARROW = 24;
function lastParts(name, width) {
  if (/^[[(][^:]*$/.test(name)) return name;
  const parts = name.split("::"), own = parts.pop();
  let text = own.includes("operator") ? own : own.slice(own.lastIndexOf(" ") + 1);
  while (parts.length && parts[parts.length - 1] && !parts[parts.length - 1].includes(" ") && text.length + 2 + parts[parts.length - 1].length <= width) text = `${parts.pop()}::${text}`;
  return text;
}
// At most so many characters: without parameters, then template arguments, then with the middle left out. The end of a
// name tells functions apart.
function shortened(name, width, withoutParameters) {
  if (name.length <= width) return name;
  let text = withoutParameters || name;
  if (text.length > width) text = withoutTemplateArguments(text);
  if (text.length <= width) return text;
  if (width < 4) return "";
  if (width < NARROW) text = lastParts(text.replaceAll("<…>", ""), width) || text;
  if (text.length <= width) return text;
  const head = Math.floor((width - 1) / 3);
  return text.slice(0, head) + "…" + text.slice(text.length - (width - 1 - head));
}

// ---- colours -------------------------------------------------------------------------------------------------------
// Hues well apart for the modules that matter most; the rest by a hash of the name. The kernel has its own.
const HUES = [212, 145, 42, 268, 178, 322, 88, 235, 24, 195, 290, 62];
const KINDS = {
  kernel: [8, 70, "kernel"], program: [212, 52, "program"], library: [145, 52, "shared library"], interpreted: [42, 60, "interpreted"],
  generated: [268, 52, "made at run time"], unnamed: [220, 8, "without a name"],
};
const CERTAINTIES = [[145, 50], [178, 50], [88, 50], [42, 70], [8, 70]];  // of names.certainties
const COLOURS = { MODULE: "module", KIND: "kind", CERTAINTY: "certainty" };
let moduleHues = [];  // [hue, saturation] of each module
const isDark = () => document.documentElement.dataset.theme === "dark";
const hash = (text) => { let h = 7; for (let i = 0; i < text.length; i++) h = (h * 31 + text.charCodeAt(i)) >>> 0; return h; };
const places = new Map();  // in HUES, of a module's name: kept when newer data come
// `byWeight`: the modules of the whole profile, heaviest first.
function chooseHues(byWeight) {
  for (const [module] of byWeight) {
    const { name } = names.modules[module];
    if (!places.has(name)) places.set(name, places.size);
  }
  moduleHues = names.modules.map((module) => {
    if (module.kernel) return [8, 70];
    const place = places.has(module.name) ? places.get(module.name) : HUES.length;
    return place < HUES.length ? [HUES[place], 52] : [hash(module.name) % 360, 34];
  });
}
function kindOf(frame) {
  const module = moduleOf(frame), { kind, interpreted } = names.frames[frame];
  if (interpreted) return "interpreted";
  if (module && module.kernel) return "kernel";
  if (kind === KIND.UNNAMED) return "unnamed";
  if (!module) return "generated";
  if (module.path.startsWith("[") && module.name !== "[vdso]") return "generated";
  return /\.so(\.|$)|\.dll$|^\[vdso\]$/i.test(module.name) ? "library" : "program";
}
function tone([hue, saturation], step, quiet) {
  const lightness = isDark() ? 28 + 0.75 * step : 73 + 1.6 * step;  // labels are readable on each
  return `hsl(${hue} ${quiet ? saturation * 0.35 : saturation}% ${lightness}%)`;
}
const GREY = [220, 7];
function colourOf(box, by, quiet) {
  if (names.diff) return differenceTone(box, quiet);
  if (!isCode(box.frame)) return tone(GREY, 0, quiet);
  const step = hash(nameOf(box.frame)) % 9 - 4;  // neighbours of one colour stay distinguishable
  if (by === COLOURS.CERTAINTY) return tone(CERTAINTIES[box.certainty] || GREY, step, quiet);
  if (by === COLOURS.KIND) return tone(KINDS[kindOf(box.frame)], step, quiet);
  const { module } = names.frames[box.frame];
  return tone(module === undefined ? GREY : moduleHues[module], step, quiet);
}
