
// ---- times ---------------------------------------------------------------------------------------------------------
// When samples were taken, in ns since the start. All threads' moments stand one after the other, by thread and begin.
const LANES = 200, BARS = 400;
let moments = null;  // null: the profile has no times

function readMoments(number) {
  const counts = names.threads.map(() => number()), first = [0];
  for (const n of counts) first.push(first[first.length - 1] + n);
  const all = first[counts.length];
  const begin = new Float64Array(all), entry = new Uint32Array(all), lasted = new Float64Array(all);
  let end = names.seconds * 1e9;
  counts.forEach((n, thread) => {
    for (let i = first[thread], time = 0; i < first[thread + 1]; i++) begin[i] = time += number();
  });
  for (let i = 0; i < all; i++) entry[i] = number();
  for (let i = 0; i < all; i++) {
    lasted[i] = number();
    end = Math.max(end, begin[i] + lasted[i]);
  }
  return { first, begin, entry, lasted, end };
}
// Counts and values of the entries in [from, to), as `report --from --to` has them: an instant counts where it begins, a
// wait for the part that is there.
function narrowed(from, to) {
  const { begin, entry, lasted } = moments, count = new Float64Array(table.entries), value = new Float64Array(table.entries);
  for (let i = 0; i < begin.length; i++) {
    const at = begin[i], end = at + lasted[i];
    if (lasted[i] === 0 ? at < from || at >= to : end <= from || at >= to) continue;
    count[entry[i]] += names.per_time[table.event[entry[i]]][0];
    if (lasted[i] > 0) value[entry[i]] += Math.min(end, to) - Math.max(at, from);
  }
  for (let i = 0; i < value.length; i++) value[i] = Math.min(value[i], table.value[i]);
  return { count, value };
}
// Of each label set: does it have one of the wanted values of every wanted key? Empty: all sets are wanted.
function wantedSets(labels) {
  if (!labels.length) return null;
  const keys = new Map();
  for (const [key, value] of labels) keys.set(key, (keys.get(key) || new Set()).add(value));
  return names.labels.map((set) => [...keys].every(([key, values]) => set.some(([k, v]) => k === key && values.has(v))));
}
// What each moment weighs: of the chosen value, of samples with the wanted labels.
function weigher({ value, labels }) {
  const factors = names.values[value].factors, wanted = wantedSets(labels);
  return (i) => {
    const entry = moments.entry[i], event = table.event[entry];
    if (wanted && !wanted[table.labels[entry]]) return 0;
    return names.per_time[event][0] * factors[event][0] + moments.lasted[i] * factors[event][1];
  };
}
// How long a moment stands for: a sample of a clock until the next one is due.
const standsFor = (i) => moments.lasted[i] || names.per_time[table.event[moments.entry[i]]][1];

// The lanes of the time line: a process each, and the threads of the one that is open. Heaviest first. A bar is the
// weight in a part of all time.
function lanes(question) {
  const weigh = weigher(question), ofThread = new Float64Array(names.threads.length), ofProcess = new Map();
  for (let thread = 0; thread < names.threads.length; thread++) {
    for (let i = moments.first[thread]; i < moments.first[thread + 1]; i++) ofThread[thread] += weigh(i);
    if (ofThread[thread] > 0) add(ofProcess, names.threads[thread][0], ofThread[thread]);
  }
  const processes = descending(ofProcess), made = [], bars = Math.max(20, Math.min(BARS, Math.floor(question.laneWidth / 3)));
  const most = Math.min(LANES, question.lanes), laneOf = new Map(), threadLane = new Map();
  const lane = (process, thread, name, total) => made.push({ process, thread, name, total, bars: new Float64Array(bars) }) - 1;
  for (const [process, total] of processes.slice(0, most)) {
    laneOf.set(process, lane(process, -1, names.processes[process], total));
    if (process !== question.open) continue;
    const threads = descending(new Map([...ofThread].map((n, i) => [i, n]).filter(([i, n]) => n > 0 && names.threads[i][0] === process)));
    for (const [thread, n] of threads.slice(0, most)) threadLane.set(thread, lane(process, thread, `${names.threads[thread][2]} ${names.threads[thread][1]}`, n));
    if (threads.length > most) made.push({ process, thread: -2, name: `${threads.length - most} more threads`, total: 0, bars: null });
  }
  const scale = bars / moments.end;
  for (let thread = 0; thread < names.threads.length; thread++) {
    const own = [laneOf.get(names.threads[thread][0]), threadLane.get(thread)].filter((one) => one !== undefined).map((one) => made[one].bars);
    if (!own.length) continue;
    for (let i = moments.first[thread]; i < moments.first[thread + 1]; i++) {
      const weight = weigh(i);
      if (weight === 0) continue;
      const from = moments.begin[i] * scale, to = from + moments.lasted[i] * scale;
      for (let bar = Math.min(bars - 1, Math.floor(from)); bar < bars && bar <= to; bar++) {
        const part = to === from ? 1 : (Math.min(to, bar + 1) - Math.max(from, bar)) / (to - from);
        for (const one of own) one[bar] += weight * Math.max(0, part);
      }
    }
  }
  return { lanes: made, more: Math.max(0, processes.length - most), end: moments.end };
}

// The flame chart: what a thread did, from left to right. A column shows the moment that fills most of it, and equal
// neighbours are one box. x and n are ns since `from`. A column is a pixel, or wider until the boxes are few enough.
function chart(question) {
  const lane = question.lane >= 0 ? question.lane : heaviestLane(question);
  let columns = Math.max(100, Math.floor(question.width)), made = chartOf(question, lane, columns);
  while (made.boxes.length > MOST_BOXES && columns > 1) made = chartOf(question, lane, columns = Math.ceil(columns / 2));
  return made;
}
function chartOf(question, lane, columns) {
  const { begin, first } = moments, weigh = weigher(question);
  const from = question.from >= 0 ? question.from : 0, to = question.from >= 0 ? question.to : moments.end, step = (to - from) / columns;
  const best = new Int32Array(columns).fill(-1), share = new Float64Array(columns), filled = new Float64Array(columns);
  for (let i = first[lane]; i < first[lane + 1]; i++) {
    if (weigh(i) === 0) continue;
    const next = i + 1 < first[lane + 1] ? begin[i + 1] : Infinity, stands = standsFor(i);
    // Ticks do not come on the nanosecond: a gap of less than one more is none.
    const end = !moments.lasted[i] && next < begin[i] + 2 * stands ? next : begin[i] + stands;
    if (end <= from || begin[i] >= to) continue;
    const left = Math.max(0, (begin[i] - from) / step), right = Math.min(columns, (end - from) / step);
    for (let column = Math.floor(left); column < right; column++) {
      const part = Math.min(right, column + 1) - Math.max(left, column);
      filled[column] += part;
      if (part > share[column]) { share[column] = part; best[column] = i; }
    }
  }
  const boxes = [], open = [];  // of the column before: its boxes, the root first
  let rest = 0;  // of columns that are less than half full: as many of them are drawn as are full together
  for (let column = 0; column < columns; column++) {
    const path = [], half = filled[column] >= 0.5;
    rest = half ? 0 : rest + filled[column];
    const drawn = half || (filled[column] > 0 && rest >= 0.5);
    if (drawn && !half) rest -= 1;
    if (drawn) for (let node = table.node[moments.entry[best[column]]]; node !== 0; node = table.parent[node]) path.unshift(node);
    let depth = 0;
    while (depth < path.length && depth < open.length && boxes[open[depth]].node === path[depth]) boxes[open[depth++]].n += step;
    open.length = depth;
    for (; depth < path.length; depth++) {
      const node = path[depth], up = depth ? open[depth - 1] : -1;
      open.push(boxes.push({ key: `${node}@${column}`, node, frame: table.frame[node], depth, x: column * step, n: step, up,
                             truncated: (up >= 0 && boxes[up].truncated) || names.frames[table.frame[node]].kind === KIND.TRUNCATED }) - 1);
    }
  }
  return { boxes, whole: to - from, at: "", from, least: step, lane };
}
function heaviestLane(question) {
  const weigh = weigher(question);
  let best = 0, most = -1;
  for (let thread = 0; thread < names.threads.length; thread++) {
    if (question.process >= 0 && names.threads[thread][0] !== question.process) continue;
    let sum = 0;
    for (let i = moments.first[thread]; i < moments.first[thread + 1]; i++) sum += weigh(i);
    if (sum > most) { most = sum; best = thread; }
  }
  return best;
}
