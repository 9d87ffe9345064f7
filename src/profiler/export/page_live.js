// A page of a recording that goes on, or of a file that may change: asks its own address for newer data, and keeps what the reader has chosen.
const LIVE_INTERVAL = 2000;  // ms
const live = { paused: false, asking: false, reached: true, came: performance.now(), timer: 0, packed: "" };
const goesOn = () => Boolean(names.live && names.live.running);

async function askForNewer() {
  if (live.paused || live.asking || document.hidden || !goesOn()) return;
  live.asking = true;
  try {
    const answered = await fetch(location.pathname, { headers: { "If-None-Match": `"${names.live.version}"` } });
    live.reached = answered.ok || answered.status === 304;
    const page = answered.ok ? new DOMParser().parseFromString(await answered.text(), "text/html") : null;
    if (page && !live.paused) {
      live.packed = page.getElementById("profile").textContent;
      worker.postMessage({ profile: live.packed, keep: [state.zoom, selected], callers: state.view === VIEW.CALLERS });
      return;  // takeNewer() ends the question
    }
  } catch {
    live.reached = false;
  }
  live.asking = false;
  showLive();
}
// The same choices in newer data, whose numbers differ. `kept`: the keys of the zoom and of the box of the keyboard.
function takeNewer(text, kept) {
  const before = names, place = new URLSearchParams(addressOf());
  const { chosen, lane, value: chosenValue } = state;
  names = JSON.parse(text);
  packed = live.packed;
  state = stateOf(place);
  state.zoom = kept[0];
  state.value = Math.max(0, names.values.findIndex((one) => one.name === before.values[chosenValue].name));
  if (chosen >= 0) state.chosen = names.frames.findIndex((frame, i) => isCode(i) && frame.name === before.frames[chosen].name);
  if (lane >= 0) state.lane = names.threads.findIndex(([, tid]) => tid === before.threads[lane][1]);
  if (openProcess >= 0) openProcess = names.processes.indexOf(before.processes[openProcess]);
  selected = kept[1];
  if (time) time.key = "";  // the lanes come again
  hideTip();
  drawn = answer = null;
  Object.assign(live, { asking: false, came: performance.now() });
}
function showLive() {
  const box = $("live");
  box.hidden = !names.live;
  if (!names.live) return;
  const button = $("pause"), upTo = `The first ${names.seconds.toFixed(1)} s`, age = Math.floor((performance.now() - live.came) / 1000);
  button.hidden = !goesOn();
  button.textContent = live.paused ? "Paused" : "Live";
  button.setAttribute("aria-pressed", String(!live.paused));
  if (names.live.file) {
    $("age").textContent = !live.reached ? "windlass does not answer." :
      live.paused ? "A change of the file waits." : "The page follows the file.";
    return;
  }
  const reached = live.reached ? "the recording goes on" : "windlass does not answer";
  $("age").textContent = !goesOn() ? "The recording has ended. This is all of it." :
    `${upTo} of the recording, ${age} s old; ${live.paused ? "newer data wait" : reached}.`;
}
function watchLive() {
  if (!goesOn() || live.timer) return;
  let ticks = 0;
  live.timer = setInterval(() => {
    showLive();
    if (!goesOn()) clearInterval(live.timer);
    else if (++ticks % (LIVE_INTERVAL / 1000) === 0) askForNewer();
  }, 1000);
  $("pause").addEventListener("click", () => {
    live.paused = !live.paused;
    showLive();
    askForNewer();
  });
}
