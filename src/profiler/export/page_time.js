// The time line: a lane each for processes and threads, and the range of time that all numbers are of.
const LANES_AT_FIRST = 4, MORE_LANES = 200;
let time = null, laneCount = LANES_AT_FIRST, openProcess = -1;  // the worker's lanes; how many; whose threads are shown
const namesWidth = () => parseInt(getComputedStyle($("times")).getPropertyValue("--names"), 10) || 190;
function askedLanes() {
  const open = openProcess < 0 && names.processes.length === 1 ? 0 : openProcess;
  return { open, lanes: laneCount, laneWidth: chartWidth() - namesWidth(), lanesKey: time ? time.key : "" };
}

// ---- text ----------------------------------------------------------------------------------------------------------
const secondsOf = (ns) => String(Math.round(ns / 1e3) / 1e6);
function duration(ns) {
  const [size, unit] = TIMES.find(([least]) => ns >= least) || TIMES[TIMES.length - 1];
  return `${Number((ns / size).toPrecision(3))} ${unit}`;  // of which Number() takes zeroes and an exponent away
}
// Of the page's address, in seconds. Microseconds: what the address has is what is chosen.
function rangeOf(address) {
  const ns = (name) => address.has(name) ? Math.round(Number(address.get(name)) * 1e6) * 1e3 : NaN, from = ns("from"), to = ns("to");
  return from >= 0 && to > from && names.threads.length ? { from, to } : { from: -1, to: -1 };
}

// ---- the range -----------------------------------------------------------------------------------------------------
function chooseRange(from, to) {
  const whole = (ns) => Math.round(Math.max(0, Math.min(time.end, ns)) / 1e3) * 1e3;
  const [low, high] = [whole(Math.min(from, to)), whole(Math.max(from, to))];
  choose(high > low ? { from: low, to: high, zoom: "" } : { from: -1, to: -1, zoom: "" });
}
function showRange(from, to) {
  $("range").hidden = from < 0;
  $("range").style.left = `${100 * from / time.end}%`;
  $("range").style.width = `${100 * (to - from) / time.end}%`;
  $("rangeText").replaceChildren(from < 0 ? `All of ${secondsOf(time.end)} s. Drag over the lanes to choose a time.` : `${secondsOf(from)} s to ${secondsOf(to)} s: ${duration(to - from)} `);
  if (from < 0) return;
  const all = element("button", "All of the time");
  all.addEventListener("click", () => choose({ from: -1, to: -1, zoom: "" }));
  $("rangeText").append(all);
}
function moveRange(by, end) {
  const length = state.from < 0 ? time.end / 10 : state.to - state.from, step = by * length / 10;
  if (state.from < 0) chooseRange(0, length);
  else if (end) chooseRange(state.from, Math.max(state.from + 1e3, state.to + step));
  else {
    const from = Math.max(0, Math.min(time.end - length, state.from + step));
    chooseRange(from, from + length);
  }
}
function watchBrush() {
  const brush = $("brush");
  let begin = -1;
  const at = (event) => {
    const { left, width } = brush.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - left) / width)) * time.end;
  };
  brush.setAttribute("aria-label", "Time: drag, or use the arrow keys to move the range, with Shift its end");
  brush.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    begin = at(event);
    brush.setPointerCapture(event.pointerId);
  });
  brush.addEventListener("pointermove", (event) => { if (begin >= 0) showRange(Math.min(begin, at(event)), Math.max(begin, at(event))); });
  brush.addEventListener("pointerup", (event) => {
    if (begin < 0) return;
    const from = begin, moved = Math.abs(at(event) - from) / time.end * brush.clientWidth;
    begin = -1;
    if (moved > 3) chooseRange(from, at(event));
    else if (state.from >= 0) choose({ from: -1, to: -1, zoom: "" });
    else showRange(-1, -1);
  });
  brush.addEventListener("pointercancel", () => { begin = -1; showRange(state.from, state.to); });
  brush.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moveRange(by, event.shiftKey);
  });
}

// Marks at round times from `from` on, for `length` ns, about 120 pixels apart.
function showAxis(axis, from, length) {
  const wanted = length * 120 / Math.max(120, axis.clientWidth), ten = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= wanted), marks = [];
  for (let at = Math.ceil(from / step) * step; at < from + length * 0.97; at += step) {
    const mark = element("span", `${secondsOf(at)} s`);
    mark.style.left = `${100 * (at - from) / length}%`;
    marks.push(mark);
  }
  axis.replaceChildren(...marks);
}

// ---- lanes ---------------------------------------------------------------------------------------------------------
function drawBars(canvas, bars, most, colour) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = colour;
  bars.forEach((n, i) => {
    if (n === 0) return;
    const tall = Math.max(1, n / most * (height - 2)), left = i * width / bars.length;
    context.fillRect(left, height - tall, Math.max(0.7, width / bars.length - 0.4), tall);
  });
}
function laneRow(lane) {
  const row = element("div", undefined, lane.thread === -1 ? "lane" : "lane thread"), head = element("div");
  const name = element("button", undefined, "name"), [, start, number] = lane.name.match(/^(.*?)( \d+| \(pid \d+\))?$/s);
  name.append(element("span", start), element("b", number));
  name.title = lane.name;
  if (lane.thread === -1) {
    const open = element("button", lane.process === askedLanes().open ? "▾" : "▸", "open");
    open.setAttribute("aria-label", `Threads of ${lane.name}`);
    open.setAttribute("aria-expanded", String(lane.process === askedLanes().open));
    open.addEventListener("click", () => { openProcess = openProcess === lane.process ? -1 : lane.process; ask(); });
    head.append(open);
    name.addEventListener("click", () => choose({ process: state.process === lane.process ? -1 : lane.process, thread: -1, zoom: "" }));
  } else if (lane.thread >= 0) {
    name.addEventListener("click", () => choose({ view: VIEW.CHART, lane: lane.thread, zoom: "" }));
  } else {
    name.disabled = true;
  }
  head.append(name);
  row.append(head, element("canvas"));
  lane.row = row;
  return row;
}
function showTime() {
  $("times").hidden = !names.threads.length;
  if (!names.threads.length) return;
  if (answer.time) {
    ({ time } = answer);
    $("lanes").replaceChildren(...time.lanes.map(laneRow));
    if (time.more) {
      const row = element("div", undefined, "lane"), more = element("button", `${count(time.more)} more processes`);
      more.disabled = laneCount === MORE_LANES;
      more.addEventListener("click", () => { laneCount = MORE_LANES; ask(); });
      row.append(more);
      $("lanes").append(row);
    }
    showAxis($("axis"), 0, time.end);
    $("brush").style.height = `calc(var(--lane) * ${time.lanes.length})`;
  }
  const most = (threads) => Math.max(...time.lanes.filter((one) => one.bars && (one.thread >= 0) === threads).map((one) => Math.max(...one.bars)), 1e-9);
  const style = getComputedStyle(document.documentElement), ofProcesses = most(false), ofThreads = most(true);
  for (const lane of time.lanes) {
    const pressed = lane.thread >= 0 ? state.view === VIEW.CHART && answer.drawn && answer.drawn.lane === lane.thread : lane.thread === -1 && state.process === lane.process;
    lane.row.querySelector(".name").setAttribute("aria-pressed", String(Boolean(pressed)));
    if (lane.bars) drawBars(lane.row.querySelector("canvas"), lane.bars, lane.thread >= 0 ? ofThreads : ofProcesses, style.getPropertyValue(lane.thread >= 0 ? "--quiet" : "--accent"));
  }
  showRange(state.from, state.to);
}
function noteOfChart() {
  const [process, tid, name] = names.threads[answer.drawn.lane];
  return `Thread ${name} (${tid}) of ${names.processes[process]}, from left to right. A column is ${duration(answer.drawn.least)}, and shows what filled most of it. A click on a frame chooses its time.`;
}
watchBrush();
