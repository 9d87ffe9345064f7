"use strict";
// Runs beside the page, in a worker. Holds all stacks of the profile (page_table.h) and computes every number of the page
// from them. The page sends a question; the answer has what the page shows.
const KIND = { FUNCTION: 0, UNNAMED: 1, COMM: 2, TRUNCATED: 3 };
const MOST_BOXES = 15000, LABELS = 8, LABEL_VALUES = 8;
let names, table;

async function unpacked(text) {
  const binary = atob(text), packed = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Node 0 is the root. Nodes are in preorder: the subtree of node i ends before ends[i].
function readTable(bytes, at) {
  const number = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  const nodes = number() + 1, entries = number();
  const parent = new Uint32Array(nodes), frame = new Uint32Array(nodes), ends = new Uint32Array(nodes), top = new Uint32Array(nodes);
  const path = [0];
  for (let i = 1; i < nodes; i++) {
    for (let up = number(); up > 0; up--) ends[path.pop()] = i;
    parent[i] = path[path.length - 1];
    path.push(i);
  }
  for (const open of path) ends[open] = nodes;
  let next = 0;
  for (let i = 1; i < nodes; i++) {
    const back = number();
    frame[i] = back === 0 ? next++ : next - back;
    top[i] = parent[i] === 0 ? frame[i] : top[parent[i]];
  }
  const columns = { node: new Uint32Array(entries) };
  for (let i = 0, node = 0; i < entries; i++) columns.node[i] = node += number();
  for (const name of ["process", "event", "labels", "end", "certainty", "module", "line"]) {
    columns[name] = new Uint32Array(entries);
    for (let i = 0; i < entries; i++) columns[name][i] = number();
  }
  for (const name of ["count", "value"]) {
    columns[name] = new Float64Array(entries);
    for (let i = 0; i < entries; i++) columns[name][i] = number();
  }
  const read = { nodes, parent, frame, ends, top, entries, ...columns };
  return { table: read, moments: names.threads.length ? readMoments(number) : null };
}

const isCode = (frame) => names.frames[frame].kind === KIND.FUNCTION || names.frames[frame].kind === KIND.UNNAMED;
const descending = (map) => [...map].sort((a, b) => b[1] - a[1]);
const add = (map, key, n) => map.set(key, (map.get(key) || 0) + n);
// Each node's sum of its subtree.
function summed(self) {
  const total = self.slice();
  for (let i = table.nodes - 1; i > 0; i--) total[table.parent[i]] += total[i];
  return total;
}

// The samples of one value, of one process or all, of one thread's name or all (-1: all), with all labels, of a time.
// `whole` is of the value; `all` of its labels and time.
function choose({ value, process, thread, labels, from, to }) {
  const factors = names.values[value].factors, wanted = wantedSets(labels), counted = from >= 0 && moments ? narrowed(from, to) : table;
  const chosen = { samples: 0, truncated: 0, chained: 0, whole: 0, all: 0, byEnd: new Map(), byModule: new Map(), bySet: new Map(), byProcess: new Map(), byThread: new Map() };
  const weights = chosen.weights = new Float64Array(table.entries), self = new Float64Array(table.nodes);
  for (let i = 0; i < table.entries; i++) {
    const [ofCount, ofValue] = factors[table.event[i]];
    chosen.whole += table.count[i] * ofCount + table.value[i] * ofValue;
    const weight = counted.count[i] * ofCount + counted.value[i] * ofValue;
    if (weight === 0 || (wanted && !wanted[table.labels[i]])) continue;
    const node = table.node[i];
    chosen.all += weight;
    add(chosen.byProcess, table.process[i], weight);
    if (process >= 0 && table.process[i] !== process) continue;
    add(chosen.byThread, table.top[node], weight);
    if (thread >= 0 && table.top[node] !== thread) continue;
    weights[i] = weight;
    self[node] += weight;
    chosen.samples += weight;
    add(chosen.byEnd, table.end[i], weight);
    if (table.module[i] > 0) add(chosen.byModule, table.module[i] - 1, weight);
    add(chosen.bySet, table.labels[i], weight);
  }
  for (const [end, weight] of chosen.byEnd) {
    if (names.ends[end][1]) chosen.truncated += weight;
    if (names.ends[end][2]) chosen.chained += weight;
  }
  chosen.self = self;
  chosen.total = summed(self);
  countFunctions(chosen);
  return chosen;
}
// Of each frame: its own samples, and those through it. A recursive function counts once a sample.
function countFunctions(chosen) {
  const { parent, frame } = table, count = names.frames.length;
  const self = chosen.frameSelf = new Float64Array(count), total = chosen.frameTotal = new Float64Array(count);
  const open = new Uint32Array(count), path = [];
  for (let i = 1; i < table.nodes; i++) {
    while (path.length && path[path.length - 1] !== parent[i]) open[frame[path.pop()]]--;
    self[frame[i]] += chosen.self[i];
    if (open[frame[i]]++ === 0) total[frame[i]] += chosen.total[i];
    path.push(i);
  }
}
// [key, [[value, its weight]...], how many values more, the weight of samples without the label]
function labelShares(chosen) {
  const keys = new Map();
  for (const [set, weight] of chosen.bySet) {
    const here = new Set();
    for (const [key, value] of names.labels[set]) {
      if (!keys.has(key)) keys.set(key, { shares: new Map(), having: 0 });
      add(keys.get(key).shares, value, weight);
      here.add(key);
    }
    for (const key of here) keys.get(key).having += weight;
  }
  const all = [...keys].map(([key, { shares, having }]) => {
    const sorted = descending(shares);
    return [key, sorted.slice(0, LABEL_VALUES), Math.max(0, sorted.length - LABEL_VALUES), chosen.samples - having];
  });
  return all.sort((a, b) => a[3] - b[3]).slice(0, LABELS);
}
function summary(chosen) {
  const { samples, truncated, chained, whole, all } = chosen;
  const ends = descending(chosen.byEnd).filter(([end]) => names.ends[end][1]).map(([end, n]) => [names.ends[end][0], n]);
  return { samples, truncated, chained, whole, all, ends, labels: labelShares(chosen), modules: descending(chosen.byModule),
           processes: descending(chosen.byProcess), threads: descending(chosen.byThread) };
}

// ---- search --------------------------------------------------------------------------------------------------------
// By the function's name; the types of its parameters are not what people look for.
function matcher(query) {
  if (query.startsWith("module:")) {
    const wanted = query.slice(7);
    const is = (module) => module !== undefined && names.modules[module].name === wanted;
    return (frame) => frame.modules ? frame.modules.some(is) : is(frame.module);
  }
  const searched = (frame) => frame.plain || frame.name;
  try {
    const expression = new RegExp(query, "i");
    return (frame) => expression.test(searched(frame));
  } catch {  // an unfinished expression is taken as it is written
    return (frame) => searched(frame).toLowerCase().includes(query.toLowerCase());
  }
}
// The page ends this worker if it hears of no end.
function matched(query) {
  postMessage({ searching: query });
  const matches = Uint8Array.from(names.frames, matcher(query));
  postMessage({ searched: true });
  return matches;
}
// A match inside another match is not counted twice.
function search(chosen, query) {
  const { parent, frame } = table, matches = matched(query), inside = new Uint8Array(table.nodes);
  const found = { matches, samples: 0, functions: 0 };
  for (let i = 1; i < table.nodes; i++) {
    inside[i] = inside[parent[i]] | matches[frame[i]];
    if (inside[i] && !inside[parent[i]]) found.samples += chosen.total[i];
  }
  matches.forEach((yes, i) => { if (yes && isCode(i) && chosen.frameTotal[i] > 0) found.functions++; });
  return found;
}

// ---- boxes ---------------------------------------------------------------------------------------------------------
const byWidth = (a, b) => b.n - a.n || (names.frames[a.frame].name < names.frames[b.frame].name ? -1 : 1);
// Which certainty most of the samples through a node have.
function certainties(chosen) {
  const most = new Float64Array(table.nodes), best = new Uint8Array(table.nodes);
  const selves = names.certainties.map(() => new Float64Array(table.nodes));
  for (let i = 0; i < table.entries; i++) selves[table.certainty[i]][table.node[i]] += chosen.weights[i];
  selves.forEach((self, certainty) => summed(self).forEach((n, node) => {
    if (n > most[node]) { most[node] = n; best[node] = certainty; }
  }));
  return { selves, best };
}
function childrenOf(chosen, node, least) {
  const children = [];
  for (let i = node + 1; i < table.ends[node]; i = table.ends[i])
    if (chosen.total[i] > 0 && chosen.total[i] >= least) children.push({ node: i, frame: table.frame[i], n: chosen.total[i] });
  return children.sort(byWidth);
}
// The call tree below the node `zoom`: boxes of at least `least`, a parent before its children. The boxes above it come
// first; x is in the unit of n.
function callBoxes(chosen, zoom, least) {
  const at = zoom > 0 && zoom < table.nodes && chosen.total[zoom] > 0 ? zoom : 0;
  const boxes = [], above = [];
  for (let i = at; i !== 0; i = table.parent[i]) above.unshift(table.parent[i]);
  const made = (node, depth, x, truncated) => ({ key: String(node), node, frame: node ? table.frame[node] : -1, depth, x, n: chosen.total[node], self: chosen.self[node],
    truncated: truncated || (node > 0 && names.frames[table.frame[node]].kind === KIND.TRUNCATED) });
  const truncated = (place) => place >= 0 && boxes[place].truncated;
  above.forEach((node, depth) => boxes.push({ ...made(node, depth, 0, truncated(depth - 1)), up: depth - 1, above: true }));
  const todo = [{ ...made(at, above.length, 0, truncated(above.length - 1)), up: above.length - 1 }];
  while (todo.length && boxes.length <= MOST_BOXES) {
    const box = todo.pop();
    const up = boxes.push(box) - 1;
    let x = box.x;
    for (const child of childrenOf(chosen, box.node, least)) {
      todo.push({ ...made(child.node, box.depth + 1, x, box.truncated), up });
      x += child.n;
    }
  }
  return { boxes, whole: chosen.total[at], at: at ? String(at) : "" };
}
// The same samples from their ends: what runs first, who calls it below. `zoom`: the frames on the way to a box.
// A group has the ends of its samples (leaves) and the nodes at which these stand now (places).
function callerBoxes(chosen, zoom, least) {
  let group = { frame: -1, key: "", depth: 0, up: -1, x: 0, n: 0, leaves: [], places: null };
  for (let i = 1; i < table.nodes; i++) if (chosen.self[i] > 0) { group.leaves.push(i); group.n += chosen.self[i]; }
  const expand = (from) => {
    const groups = new Map();
    from.leaves.forEach((leaf, i) => {
      const place = from.places ? table.parent[from.places[i]] : leaf;
      if (place === 0) return;
      const frame = table.frame[place];
      let to = groups.get(frame);
      if (!to) groups.set(frame, to = { frame, key: from.key ? `${from.key}.${frame}` : String(frame), depth: from.depth + 1, x: 0, n: 0, leaves: [], places: [] });
      to.n += chosen.self[leaf];
      to.leaves.push(leaf);
      to.places.push(place);
    });
    return [...groups.values()].sort(byWidth);
  };
  const boxes = [];
  for (const frame of zoom ? zoom.split(".") : []) {
    const next = expand(group).find((one) => one.frame === Number(frame));
    if (!next) break;
    next.up = boxes.push({ ...group, above: true }) - 1;
    group = next;
  }
  const whole = group.n, at = group.key, todo = [group];
  let narrow = 0, functions = 0;
  while (todo.length && boxes.length <= MOST_BOXES) {
    const box = todo.pop();
    const up = boxes.push(box) - 1;
    let x = box.x;
    for (const one of expand(box)) {
      if (one.n < least) {
        if (box.depth === 0) { narrow += one.n; functions++; }
        continue;
      }
      todo.push({ ...one, x, up });
      x += one.n;
    }
    if (box.depth === 0 && narrow >= least && functions) boxes.push({ key: "", frame: -2, functions, depth: 1, up, x, n: narrow });
  }
  return { boxes, whole, at };
}
function marked(drawn, found) {
  for (const box of drawn.boxes) box.match = found !== null && box.frame >= 0 && found.matches[box.frame] === 1;
  return drawn;
}
// What is drawn at a width: boxes of a pixel and more, and not more of them than browsers draw at once.
function draw(chosen, question, found) {
  const make = question.view === "callers" ? (least) => callerBoxes(chosen, question.zoom, least) : (least) => callBoxes(chosen, Number(question.zoom), least);
  const whole = make(Infinity).whole;
  let least = whole / Math.max(100, question.width), drawn = make(least);
  while (drawn.boxes.length > MOST_BOXES) drawn = make(least *= 2);
  const sure = question.colour === "certainty" ? certainties(chosen) : null;
  marked(drawn, found).boxes.forEach((box) => {
    if (sure && box.leaves) {
      const sums = sure.selves.map((self) => box.leaves.reduce((sum, leaf) => sum + self[leaf], 0));
      box.certainty = sums.indexOf(Math.max(...sums));
    } else if (sure && box.node !== undefined) {
      box.certainty = sure.best[box.node];
    }
    if (chosen.sides) addSides(box, chosen.sides);
    delete box.leaves;
    delete box.places;
  });
  drawn.least = least;
  return drawn;
}

// ---- functions -----------------------------------------------------------------------------------------------------
function rows(chosen, { order, limit }, found) {
  const all = [];
  for (let i = 0; i < names.frames.length; i++)
    if (chosen.frameTotal[i] > 0 && isCode(i) && (!found || found.matches[i])) all.push([i, chosen.frameSelf[i], chosen.frameTotal[i]]);
  all.sort((a, b) => b[order] - a[order] || b[3 - order] - a[3 - order] || a[0] - b[0]);
  return { rows: all.slice(0, limit), more: Math.max(0, all.length - limit) };
}
// Who calls a function and whom it calls, in samples of it. Calls of its own to itself are not taken apart. A sample
// counts once for a callee.
function neighbours(chosen, wanted) {
  const { parent, frame, ends } = table, { total } = chosen, callers = new Map(), callees = new Map(), lines = new Map();
  for (let i = 1; i < table.nodes; i++) {
    if (frame[i] !== wanted || total[i] === 0) continue;
    const called = new Set([wanted]);  // by it, further out in these stacks
    for (let above = parent[i], below = i; above !== 0; below = above, above = parent[above]) if (frame[above] === wanted) called.add(frame[below]);
    for (let child = i + 1; child < ends[i]; child = ends[child]) if (total[child] > 0 && !called.has(frame[child])) add(callees, frame[child], total[child]);
    if (!recursive(i, wanted)) add(callers, parent[i] === 0 ? -1 : frame[parent[i]], total[i]);
  }
  for (let i = 0; i < table.entries; i++)
    if (chosen.weights[i] > 0 && frame[table.node[i]] === wanted && table.line[i] > 0) add(lines, table.line[i], chosen.weights[i]);
  return { self: chosen.frameSelf[wanted], total: chosen.frameTotal[wanted], callers: descending(callers), callees: descending(callees), lines: descending(lines) };
}
function recursive(node, wanted) {
  for (let above = table.parent[node]; above !== 0; above = table.parent[above]) if (table.frame[above] === wanted) return true;
  return false;
}

// ---- questions -----------------------------------------------------------------------------------------------------
let last = { key: "", chosen: null };  // what a search or a zoom need not compute again
function answer(question) {
  const key = JSON.stringify([question.value, question.process, question.thread, question.labels, question.from, question.to]);
  if (last.key !== key) last = { key, chosen: choose(question) };
  const { chosen } = last, found = question.query ? search(chosen, question.query) : null;
  const result = { summary: summary(chosen), found: found && { samples: found.samples, functions: found.functions } };
  if (question.view === "functions") {
    Object.assign(result, rows(chosen, question, found));
    if (question.chosen >= 0) result.neighbours = neighbours(chosen, question.chosen);
  } else {
    result.drawn = question.view === "chart" && moments ? marked(chart(question), found) : draw(chosen, question, found);
    result.everywhere = { self: chosen.frameSelf, total: chosen.frameTotal };
  }
  const lanesKey = JSON.stringify([question.value, question.labels, question.open, question.lanes, question.laneWidth]);
  if (moments && question.laneWidth > 0 && lanesKey !== question.lanesKey) result.time = { key: lanesKey, ...lanes(question) };
  return result;
}
onmessage = async ({ data }) => {
  try {
    if (data.profile === undefined) {
      postMessage({ id: data.id, ...(names.diff ? answerOfDifference(data) : answer(data)) });
      return;
    }
    const bytes = await unpacked(data.profile), end = bytes.indexOf(0);
    const text = new TextDecoder().decode(bytes.subarray(0, end)), before = { names, table, callers: data.callers };
    names = JSON.parse(text);
    ({ table, moments } = readTable(bytes, end + 1));
    last = { key: "", chosen: null };
    postMessage({ names: text, kept: (data.keep || []).map((key) => boxKept(before, key)) });
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};
