// Handles the reader: zoom, pan, hover, click, keys.

// The span, or the moment of a rank's memory, at a place on the canvas; null if there is none.
function found(px, py) {
  const track = tracks.find((t) => visible(t) && y(t) <= py && py < y(t) + t.height);
  if (!track || px < GUTTER || py < AXIS) return null;
  if (track.memory) {
    const k = first(track.memory.time_s, time(px)) - 1;
    return k < 0 ? null : { track, moment: k };
  }
  const at = (py - middle(track)) / track.height;
  for (let r = ROLES.length - 1; r >= 0; r--) {
    const layer = rows[track.row][r], from = time(px - 2), to = time(px + 2);
    let best = -1, least = Infinity;
    for (let k = first(layer.reach, from); k < layer.index.length && layer.start[k] <= to; k++) {
      const look = data.looks[layer.look[k]], length = layer.end[k] - layer.start[k];
      if (layer.end[k] < from || look.top > at || look.bottom < at || length > least) continue;
      best = layer.index[k];
      least = length;
    }
    if (best >= 0) return { track, span: best };
  }
  return null;
}

const tip = document.getElementById("tip");
function tell(event) {
  const box = canvas.getBoundingClientRect(), hit = found(event.clientX - box.left, event.clientY - box.top);
  tip.hidden = !hit;
  if (!hit) return;
  const [name, lines] = hit.span === undefined ? memoryFacts(hit.track, hit.moment) : facts(hit.span);
  const head = document.createElement("b"), table = document.createElement("span");
  head.textContent = name;
  for (const [word, value] of lines) {
    const left = document.createElement("em"), right = document.createElement("u");
    left.textContent = word; right.textContent = value;
    table.append(left, right);
  }
  tip.replaceChildren(head, table);
  const beyond = event.clientX + 24 + tip.offsetWidth > window.innerWidth;
  tip.style.left = `${Math.max(0, beyond ? event.clientX - 12 - tip.offsetWidth : event.clientX + 16)}px`;
  tip.style.top = `${Math.max(0, Math.min(event.clientY + 12, window.innerHeight - tip.offsetHeight - 4))}px`;
}

// Shows from `start` to `end`: at most the whole run, at least a nanosecond.
function show(start, end) {
  const most = data.end_s - data.start_s, length = Math.min(most, Math.max(1e-9, end - start));
  view.start = Math.max(data.start_s, Math.min(start, data.end_s - length));
  view.end = view.start + length;
  redraw();
}

function zoom(factor, around) {
  show(around - (around - view.start) * factor, around + (view.end - around) * factor);
}

function scrollTo(top) {
  view.scroll = Math.max(0, Math.min(top, tracks.bottom - (height - AXIS)));
  redraw();
}

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (event.shiftKey) scrollTo(view.scroll + (event.deltaY || event.deltaX));
  else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = time(event.deltaX) - time(0);
    show(view.start + by, view.end + by);
  } else zoom(1.0015 ** Math.max(-400, Math.min(400, event.deltaY)), time(Math.max(GUTTER, event.offsetX)));
  tip.hidden = true;
}, { passive: false });

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY, start: view.start, end: view.end, scroll: view.scroll, moved: false };
  try { canvas.setPointerCapture(event.pointerId); } catch { /* the pointer is gone */ }
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) { tell(event); return; }
  const by = (drag.x - event.clientX) / (width - GUTTER) * (drag.end - drag.start);
  drag.moved = drag.moved || Math.hypot(drag.x - event.clientX, drag.y - event.clientY) > 3;
  if (!drag.moved) return;
  tip.hidden = true;
  show(drag.start + by, drag.end + by);
  scrollTo(drag.scroll + drag.y - event.clientY);
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) {
    const box = canvas.getBoundingClientRect(), hit = found(event.clientX - box.left, event.clientY - box.top);
    chosen = hit && hit.span !== undefined ? hit.span : -1;
    redraw();
  }
  drag = null;
});
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

function toggleArrows() {
  allArrows = !allArrows;
  document.getElementById("arrows").setAttribute("aria-pressed", String(allArrows));
  redraw();
}
const showAll = () => { show(data.start_s, data.end_s); scrollTo(0); };
document.getElementById("arrows").addEventListener("click", toggleArrows);
document.getElementById("all").addEventListener("click", showAll);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const by = (view.end - view.start) / 8, centre = (view.start + view.end) / 2;
  const does = {
    ArrowLeft: () => show(view.start - by, view.end - by),
    ArrowRight: () => show(view.start + by, view.end + by),
    ArrowUp: () => scrollTo(view.scroll - 60),
    ArrowDown: () => scrollTo(view.scroll + 60),
    "+": () => zoom(1 / 1.5, centre),
    "=": () => zoom(1 / 1.5, centre),
    "-": () => zoom(1.5, centre),
    0: showAll,
    a: toggleArrows,
  }[event.key];
  if (does) { does(); event.preventDefault(); }
});

legend();
new ResizeObserver(arrange).observe(canvas);
arrange();
