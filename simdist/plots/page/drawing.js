// Draws everything in sight on one canvas: no element of the page represents a single span.
//
//   view     from when to when is in sight, in seconds, and how far the tracks are scrolled, in pixels

const canvas = document.getElementById("canvas"), ctx = canvas.getContext("2d");
const GUTTER = 108, AXIS = 24, MEMORY_HEIGHT = 56, MOST_ARROWS = 2000;

const view = { start: data.start_s, end: data.end_s, scroll: 0 };
let width = 0, height = 0, allArrows = false, chosen = -1, hidden = 0;

// Fits the tracks to the window.
function arrange() {
  const scale = window.devicePixelRatio || 1;
  width = canvas.clientWidth; height = canvas.clientHeight;
  canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  const memories = tracks.filter((t) => t.memory).length;
  const room = (height - AXIS - memories * MEMORY_HEIGHT) / (tracks.length - memories);
  const rowHeight = Math.max(14, Math.min(46, room));
  let top = 0;
  for (const track of tracks) {
    track.top = top; track.height = track.memory ? MEMORY_HEIGHT : rowHeight;
    top += track.height;
  }
  tracks.bottom = top;
  scrollTo(view.scroll);
  draw(); // at once: a new size has emptied the canvas
}

const x = (seconds) => GUTTER + (seconds - view.start) / (view.end - view.start) * (width - GUTTER);
const time = (px) => view.start + (px - GUTTER) / (width - GUTTER) * (view.end - view.start);
const y = (track) => AXIS + track.top - view.scroll;
const middle = (track) => y(track) + track.height / 2;
const visible = (track) => y(track) < height && y(track) + track.height > AXIS;

// The first k with values[k] >= wanted, where values ascend.
function first(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const k = (low + high) >> 1;
    if (values[k] < wanted) low = k + 1; else high = k;
  }
  return low;
}

let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function draw() {
  ctx.clearRect(0, 0, width, height);
  ctx.font = "11px 'DejaVu Sans', system-ui, sans-serif";
  ctx.textBaseline = "middle";
  hidden = 0;
  ctx.save();
  ctx.beginPath(); ctx.rect(GUTTER, AXIS, width - GUTTER, height - AXIS); ctx.clip();
  drawGrid();
  for (const track of tracks.filter(visible)) {
    if (track.memory) drawMemory(track);
    else for (const layer of rows[track.row]) drawLayer(layer, track);
  }
  const missing = drawArrows();
  ctx.restore();
  drawAxis();
  drawLabels();
  const notes = [];
  if (hidden) notes.push(`${hidden.toLocaleString("en")} spans narrower than a pixel are hidden by others: zoom in.`);
  if (missing) notes.push(`${MOST_ARROWS.toLocaleString("en")} arrows are drawn, ${missing.toLocaleString("en")} are not.`);
  document.getElementById("note").textContent = notes.join(" ");
}

const widths = new Map();
function fits(word, room) {
  if (!widths.has(word)) widths.set(word, ctx.measureText(word).width);
  return widths.get(word) + 6 < room;
}

// Of spans that look alike and are narrower than a pixel, one per pixel is drawn: this bounds the time of a frame.
function drawLayer({ index, start, end, look, reach }, track) {
  const drawnTo = new Float64Array(data.looks.length).fill(-1), perSecond = (width - GUTTER) / (view.end - view.start);
  for (let k = first(reach, view.start); k < index.length && start[k] <= view.end; k++) {
    const left = Math.max(GUTTER + (start[k] - view.start) * perSecond, GUTTER - 5);
    const right = Math.min(GUTTER + (end[k] - view.start) * perSecond, width + 5);
    if (right < GUTTER) continue;
    if (right - left < 1 && left < drawnTo[look[k]]) { hidden++; continue; }
    drawnTo[look[k]] = Math.max(left + 1, right);
    drawBox(index[k], left, right - left > 4 ? right - left - 1 : Math.max(1, right - left), track); // a gap to the next
  }
}

function drawBox(i, left, wide, track) {
  const look = lookOf(i), role = look.role, colour = data.colours[look.kind];
  const top = middle(track) + look.top * track.height;
  let high = (look.bottom - look.top) * track.height;
  if (role === "frame") {
    ctx.strokeStyle = data.faint;
    if (wide > 2) ctx.strokeRect(left + 0.5, top + 0.5, wide, high - 1);
    return;
  }
  if (role === "collective") {
    ctx.fillStyle = colour.pale;
    ctx.fillRect(left, top, wide, high);
    high = (data.strip[1] - data.strip[0]) * track.height;
  }
  ctx.fillStyle = look.kind === "wait" && wide > 3 ? hatch : colour.fill;
  ctx.fillRect(left, top, wide, high);
  const word = role === "message" ? `${look.kind === "send" ? "→" : "←"} ${spans.peer[i]}` : text("name", i);
  if (high > 8 && wide > 12 && (role !== "message" || high > 12) && fits(word, Math.min(wide, width - left))) {
    ctx.fillStyle = colour.ink;
    ctx.textAlign = "center";
    ctx.fillText(word, (Math.max(left, GUTTER) + Math.min(left + wide, width)) / 2, top + high / 2);
  }
}

const hatch = (() => {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = data.colours.wait.fill; pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = "#888888"; pen.lineWidth = 1;
  for (const d of [-8, 0, 8]) { pen.beginPath(); pen.moveTo(d, 8); pen.lineTo(d + 8, 0); pen.stroke(); }
  return ctx.createPattern(tile, "repeat");
})();

// A rank's memory, stacked by category; of the moments in a pixel the largest.
function drawMemory(track) {
  const m = track.memory, floor = y(track) + track.height - 3, scale = (track.height - 8) / mostBytes;
  let k = Math.max(0, first(m.time_s, view.start) - 1);
  while (k < m.time_s.length && m.time_s[k] <= view.end) {
    let most = k, next = k + 1;
    const until = () => Math.round(x(next < m.time_s.length ? m.time_s[next] : data.end_s)); // whole pixels: no seams
    const left = Math.max(GUTTER, Math.round(x(m.time_s[k])));
    for (; next < m.time_s.length && until() < left + 1; next++) if (total(m, next) > total(m, most)) most = next;
    let bottom = floor;
    data.categories.forEach((category, c) => {
      const high = m.live[c][most] * scale;
      ctx.fillStyle = category.colour;
      ctx.fillRect(left, bottom - high, Math.max(1, Math.min(width, until()) - left), high);
      bottom -= high;
    });
    k = next;
  }
}

// Draws lines from the start of each send to the end of its receive; returns how many are left out.
function drawArrows() {
  const lines = new Path2D(), heads = new Path2D();
  let count = 0;
  for (const [i, j] of allArrows || chosen >= 0 ? data.messages : []) {
    if (spans.start_s[i] > view.end || spans.end_s[j] < view.start) continue;
    if (!(allArrows || belongs(i) || belongs(j)) || !(visible(trackOf(i)) || visible(trackOf(j)))) continue;
    if (++count > MOST_ARROWS) continue;
    const [fromX, fromY] = anchor(i, spans.start_s[i]), [toX, toY] = anchor(j, spans.end_s[j]);
    lines.moveTo(fromX, fromY); lines.lineTo(toX, toY);
    heads.moveTo(toX, toY); heads.arc(toX, toY, 2.2, 0, 7);
  }
  ctx.strokeStyle = ctx.fillStyle = data.ink;
  ctx.lineWidth = 1;
  ctx.stroke(lines);
  ctx.fill(heads);
  if (chosen >= 0) outline(chosen);
  return Math.max(0, count - MOST_ARROWS);
}

function anchor(i, at_s) {
  const look = lookOf(i), track = trackOf(i);
  return [x(at_s), middle(track) + (look.top + look.bottom) / 2 * track.height];
}

// Whether a message is the chosen span, or happened inside it on the same row.
function belongs(i) {
  if (chosen < 0) return false;
  return i === chosen || (data.row[i] === data.row[chosen] && lookOf(chosen).role !== "message"
    && spans.start_s[i] >= spans.start_s[chosen] && spans.end_s[i] <= spans.end_s[chosen]);
}

function outline(i) {
  const look = lookOf(i), track = trackOf(i), left = x(spans.start_s[i]);
  ctx.strokeStyle = data.ink; ctx.lineWidth = 2;
  ctx.strokeRect(left, middle(track) + look.top * track.height, Math.max(2, x(spans.end_s[i]) - left),
    (look.bottom - look.top) * track.height);
  ctx.lineWidth = 1;
}

// -- around it ------------------------------------------------------------------------------------------

// Marks at 1, 2 or 5 times a power of ten; far from 0 they count from the first, whose time is written separately.
function marks() {
  const inSight = view.end - view.start, rough = inSight / Math.max(2, (width - GUTTER) / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((m) => m * power >= rough) || 10);
  const from = Math.ceil(view.start / step), found = [];
  for (let k = from; k * step <= view.end; k++) found.push(k * step);
  const far = Math.abs(view.start) > 1000 * inSight;
  return { found, origin: far ? found[0] : 0, unit: unit(UNITS_S, far ? inSight : Math.max(inSight, Math.abs(view.end))) };
}

function drawGrid() {
  ctx.fillStyle = "#EEEEEE";
  for (const t of marks().found) ctx.fillRect(Math.round(x(t)), AXIS, 1, height);
}

function drawAxis() {
  const { found, origin, unit: [length, sign] } = marks();
  ctx.fillStyle = data.ink;
  ctx.textAlign = "center";
  for (const t of found) {
    if (x(t) > GUTTER + 12 && x(t) < width - 16) ctx.fillText(digits((t - origin) / length, 8), x(t), AXIS / 2);
  }
  ctx.textAlign = "left";
  ctx.fillText(origin ? `${seconds(origin, 6)} + ${sign}` : `time (${sign})`, 12, AXIS / 2);
}

function drawLabels() {
  let rank = -1;
  ctx.save();
  ctx.beginPath(); ctx.rect(0, AXIS, width, height - AXIS); ctx.clip();
  for (const track of tracks) {
    if (visible(track)) {
      if (rank !== track.rank && track !== tracks[0]) { ctx.fillStyle = data.faint; ctx.fillRect(0, y(track), width, 1); }
      ctx.fillStyle = data.ink;
      ctx.textAlign = "left";
      if (track.memory) {
        ctx.fillText("memory, at most", 12, middle(track) - 8, GUTTER - 18);
        ctx.fillText(size(track.memory.peak_bytes), 12, middle(track) + 8, GUTTER - 18);
      } else ctx.fillText(track.label, 12, middle(track), GUTTER - 18);
    }
    rank = track.rank;
  }
  ctx.restore();
}

function legend() {
  const list = document.getElementById("legend");
  for (const { word, fill, hatched } of data.key) {
    const item = document.createElement("li"), swatch = document.createElement("i");
    swatch.style.background = hatched ? `repeating-linear-gradient(135deg, ${fill} 0 3px, #888888 3px 4px)` : fill;
    item.append(swatch, word);
    list.append(item);
  }
}
