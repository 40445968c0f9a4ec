/** The large view: one embedding at a time, moving from draw to draw. */

import { createPlot } from '../plot/make.js';
import { drawOverlay, outlinedRows } from '../plot/overlay.js';
import { followTurns } from '../plot/turning.js';
import { FAR, ballOf, boxAlong, boxOf, dimension, directionsOf, embeddingOf, outlineHere, placeInBox, points,
  titleOf } from '../lib/frames.js';
import { html, number, useEffect, useRef } from '../lib/html.js';
import { nearest } from '../lib/lasso.js';
import { colors, onTheme } from '../lib/theme.js';
import { brightRows, choosePoints, namesOf } from '../actions/selection.js';
import { set, state, subscribe, useStore } from '../store.js';
import { Content } from './content.js';
import { Legend } from './legend.js';

const STEP = 700; // milliseconds from one draw to the next
const SETTLE = 350;
const REST = 400;
const REACH = 12; // pixels within which a click means a point
const ROOM_ABOVE = 160; // pixels that the label of a point has above it, with a picture
const TOOLS = 48; // pixels of the column of tools
const TITLE = 36; // pixels of the line with the name of the frame
const calm = matchMedia('(prefers-reduced-motion: reduce)'); // then draws change without movement

/** Plot and frame on the stage, for the export. */
export const onStage = { plot: null, overlay: null, xy: null, look: null, box: null };

/** The stage. */
export function Stage() {
  const host = useRef(null);
  const overlay = useRef(null);
  useEffect(() => direct(host.current, overlay.current), []);
  const { frame, single, posterior, draws } = useStore('frame', 'single', 'posterior', 'draws');
  const name = single ? single.title : titleOf(frame);
  return html`<div class="stage-frame">
    <div class="stage" id="stage" data-testid="stage" tabindex="0" role="group"
      aria-label=${`Scatter plot: ${name}`}>
      <div class="plot-host" ref=${host}></div>
      <canvas class="overlay" ref=${overlay} aria-hidden="true"></canvas>
      <div class="stage-name" data-testid="frame-name">${posterior || single ? name : ''}
        ${frame > 0 && draws && !single &&
          html`<span class="quiet">seed ${draws.seed},
            scale ${number(draws.scale)}${draws.notes?.length ? ' (doubtful)' : ''}</span>`}</div>
      <${Tip} />
    </div>
    <${Tools} />
    <div class="stage-legend"><${Legend} /></div>
  </div>`;
}

/** Buttons at the corner of the stage. */
function Tools() {
  const { lassoing, selection, isTurning } = useStore('lassoing', 'selection', 'isTurning', 'single', 'posterior');
  const tool = (id, label, sign, pressed, act) => html`
    <button type="button" class="tool" data-testid=${id} aria-label=${label} title=${label} aria-pressed=${pressed}
      onClick=${act}>${sign}</button>`;
  return html`
    <div class="tools">
      ${tool('zoom-in', 'Zoom in (+)', '+', undefined, () => onStage.plot?.zoom(1.3))}
      ${tool('zoom-out', 'Zoom out (−)', '−', undefined, () => onStage.plot?.zoom(1 / 1.3))}
      ${tool('zoom-reset', 'Whole map (0)', '⤢', undefined, () => onStage.plot?.reset())}
      ${tool('lasso', 'Select by drawing around points (L, or Shift and drag)', '◌', Boolean(lassoing), () => {
        set({ lassoing: !lassoing });
      })}
      ${dimension() === 3 && tool('turn', 'Drag to turn (R); else drag to move', '↻', Boolean(isTurning),
        () => set({ isTurning: !isTurning }))}
      ${selection && tool('clear-selection', 'Clear the selection (Esc)', '×', undefined, () => choosePoints([]))}
    </div>
  `;
}

/** Label next to the pointer. */
function Tip() {
  const { hover } = useStore('hover', 'columns');
  if (hover < 0 || !onStage.xy || hover >= points()) return null;
  const screen = onStage.plot.screen();
  const left = screen.x + screen.sx * onStage.xy[2 * hover];
  const top = screen.y + screen.sy * onStage.xy[2 * hover + 1];
  return html`<div class=${top < ROOM_ABOVE ? 'tip below' : 'tip'} data-testid="tip"
    style=${{ left: `${left}px`, top: `${top}px` }}>
    <${Content} row=${hover} isLabel=${true} />${namesOf(hover).join(' · ')}
  </div>`;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Keep the plot in step with the state; return the function that stops it. */
function direct(host, overlay) {
  let plot = null;
  let ended = false;
  let playing = 0;
  let exact = 0;
  let wanted = 0;
  let shows = 0;
  let ball = null;
  let way = {}; // the last positions, and when the points left them
  let size = { width: host.clientWidth, height: host.clientHeight };
  const legend = host.closest('.stage-frame').querySelector('.stage-legend');

  const redraw = () => {
    wanted = 0;
    if (!plot || !onStage.box || !onStage.look) return;
    drawOverlay(overlay, size, onStage.moving ? onTheWay() : onStage.xy, plot.screen(), onStage.box, onStage.look,
      colors(), onStage.moving);
    if (onStage.moving) soon();
  };

  /** Positions of the points while they play, if the overlay has more than their names; or null. */
  function onTheWay() {
    const { xy } = onStage;
    if (
      !state.playing ||
      way.from?.length !== xy.length ||
      (state.shape === 'none' && state.selection?.list.length !== 1)
    )
      return null;
    const share = Math.min(1, (performance.now() - way.started) / STEP);
    return xy.map((value, i) => way.from[i] + (value - way.from[i]) * share);
  }
  const soon = () => (wanted ||= requestAnimationFrame(redraw));

  /** Take the look of the state, and compute the box of the shown frame: of all draws alike. */
  function measure() {
    const all = outlineHere(state.shape === 'ellipse' ? outlinedRows() : []);
    ball = all.length && dimension() === 3 ? ballOf(all, points()) : null;
    if (!ball)
      onStage.box = all.length
        ? boxOf(all, points(), dimension(), state.axes, { ...freePlace(), cut: all.length === 3 ? FAR : undefined })
        : null;
    aim();
    onStage.look = state.look?.index.length === points() ? state.look : null;
  }

  /** Aim the box of three dimensions at the shown directions. */
  function aim() {
    if (ball) onStage.box = boxAlong(ball, directionsOf(3, state.axes, state.turn), freePlace());
  }

  /** The part of the stage below its title, and beside legend and tools, which are below it on a narrow page. */
  function freePlace() {
    const { width, height } = size;
    const [left, right] =
      getComputedStyle(legend).position === 'static' ? [0, 0] : [legend.offsetWidth && legend.offsetWidth + 10, TOOLS];
    const shorter = Math.max(1, Math.min(width, height));
    return {
      room: [Math.max(shorter / 2, width - left - right) / shorter, Math.max(shorter / 2, height - TITLE) / shorter],
      middle: [(left - right) / shorter, -TITLE / shorter],
    };
  }

  /** Show the frame of the state. */
  async function show(wantedMs, quick = false) {
    if (!plot || !onStage.box || !onStage.look) return;
    const ms = calm.matches ? 0 : wantedMs;
    const n = points();
    const embedding = embeddingOf(state.frame);
    way = { from: onStage.xy?.slice(), started: performance.now() };
    if (onStage.xy?.length !== 2 * n) onStage.xy = new Float32Array(2 * n);
    placeInBox(embedding, n, dimension(), state.axes, onStage.box, onStage.xy, state.turn);
    onStage.moving = ms > 0;
    soon();
    const { look } = onStage;
    const turn = ++shows;
    await plot.show(onStage.xy, look, { ms, quick, brief: quick && wantedMs === 0 });
    if (turn !== shows) return;
    onStage.moving = false;
    soon();
    if (onStage.look !== look && !state.playing) show(0); // it came during the movement
  }

  /** Show the frame of the state exactly, once no other has followed for a while. */
  function restSoon() {
    clearTimeout(exact);
    exact = setTimeout(() => !state.playing && show(0), REST);
  }

  /** Play: move from draw to draw until playing is false. */
  async function play() {
    const turn = ++playing;
    while (!ended && turn === playing && state.playing && state.draws) {
      const isLast = state.frame >= state.draws.count;
      if (isLast && state.playing === 'once') return set({ playing: false, gliding: true, frame: -1 });
      following = true;
      set({ frame: isLast ? 1 : Math.max(1, state.frame + 1) });
      following = false;
      await Promise.all([show(STEP, true), pause(calm.matches || !onStage.look ? STEP : 0)]);
    }
    if (!ended && !state.playing) show(0); // now the index under the pointer is current
    return undefined;
  }
  let following = false; // the playback itself changed the frame
  let isAverage = state.frame === -1;

  const stopListening = subscribe((changes) => {
    if (!plot) return;
    const has = (...names) => names.some((name) => name in changes);
    if (has('reference', 'draws', 'single', 'axes', 'dataset', 'hidden')) {
      clearTimeout(exact);
      measure();
      host.hidden = !onStage.box;
      if (onStage.box) show(has('draws') && state.draws ? 0 : SETTLE);
      else soon();
      overlay.hidden = !onStage.box;
    } else if (has('turn')) {
      aim();
      if (onStage.box) show(0, true);
      restSoon();
    } else if (has('look')) {
      measure();
      if (onStage.box && !state.playing && !onStage.moving) show(0);
    } else if (has('shape') || (state.shape === 'ellipse' && has('selection'))) {
      measure();
      if (onStage.box && !state.playing) show(SETTLE);
    } else if (has('frame')) {
      if (isAverage !== (state.frame === -1)) measure();
      isAverage = state.frame === -1;
      if (following) return;
      show(changes.frame === state.frame && state.gliding ? SETTLE : 0, true);
      restSoon();
    }
    if (has('playing') && state.playing) play();
    if (has('selection', 'passing')) plot.select(brightRows());
    if (has('lassoing')) plot.lasso(state.lassoing);
    if (has('hover', 'shape', 'selection', 'summary', 'audit', 'traced')) soon();
  });
  const stopTheme = onTheme(() => {
    plot?.colors(colors());
    plot?.redraw();
    soon();
  });
  const watcher = new ResizeObserver(() => {
    size = { width: host.clientWidth, height: host.clientHeight };
    if (!size.width) return;
    plot?.resize(size.width, size.height);
    measure();
    if (!state.playing) show(0);
  });

  followTurns(host, {
    isOn: () => dimension() === 3 && state.isTurning && !state.lassoing && Boolean(onStage.xy),
    click: (x, y) => {
      const row = nearest(x, y, onStage.xy, plot.screen(), REACH);
      choosePoints(row < 0 ? [] : [row]);
    },
  });

  createPlot(host, {
    hover: (row) => !state.playing && set({ hover: row }),
    select: (rows) => {
      choosePoints(rows);
      if (!rows.length) plot.select(brightRows()); // the plot has dimmed none, but filters may
    },
    view: () => {
      soon();
      if (state.hover >= 0) set({ hover: -1 });
    },
  }).then((made) => {
    if (ended) return made.destroy();
    plot = made;
    Object.assign(onStage, { plot, overlay });
    plot.colors(colors());
    plot.resize(size.width, size.height);
    measure();
    show(0);
    watcher.observe(host);
    watcher.observe(legend);
    plot.select(brightRows());
    return undefined;
  });

  return () => {
    ended = true;
    stopListening();
    stopTheme();
    watcher.disconnect();
    clearTimeout(exact);
    plot?.destroy();
    Object.assign(onStage, { plot: null, xy: null });
    set({ hover: -1, ...(state.playing === 'once' && { frame: -1 }) });
    set({ playing: false });
  };
}

