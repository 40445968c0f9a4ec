/** Playback controls of the draws. */

import { html } from '../lib/html.js';
import { titleOf } from '../lib/frames.js';
import { set, state, useStore } from '../store.js';

/** Go to a frame, and move the points to it. */
export function goTo(frame, { gliding = true } = {}) {
  if (!state.draws) return;
  set({ playing: false });
  set({ gliding });
  set({ frame });
}

/** Go to the next or the previous draw; the first follows the last. */
export function step(by) {
  const { draws, frame } = state;
  if (draws) goTo(frame + by > draws.count || frame + by < 1 ? (by > 0 ? 1 : draws.count) : frame + by);
}

/** Play or pause. */
export function togglePlay() {
  if (!state.draws) return;
  set({ playing: !state.playing });
}

/** The controls below the stage. */
export function Transport() {
  const { draws, frame, playing } = useStore('draws', 'frame', 'playing');
  const off = !draws;
  const count = draws?.count ?? 1;
  return html`
    <div class="transport" data-testid="transport" role="group" aria-label="Draws as an animation">
      <button type="button" class="play primary" data-testid="play" disabled=${off} aria-pressed=${Boolean(playing)}
        onClick=${togglePlay} aria-label=${playing ? 'Pause' : 'Play'}>${playing ? '❚❚' : '▶'}</button>
      <button type="button" class="step" data-testid="previous" disabled=${off} aria-label="Previous draw"
        onClick=${() => step(-1)}>‹</button>
      <input type="range" class="scrub" data-testid="scrub" min="0" max=${count} step="1" value=${Math.max(0, frame)}
        disabled=${off} aria-label="Draw" aria-valuetext=${titleOf(frame)}
        onInput=${(event) => goTo(Number(event.target.value), { gliding: false })} />
      <button type="button" class="step" data-testid="next" disabled=${off} aria-label="Next draw"
        onClick=${() => step(1)}>›</button>
      <output class="frame-count" data-testid="frame">${titleOf(frame)}</output>
      <div class="segmented" role="group" aria-label="What is shown">
        <button type="button" data-testid="show-consensus" disabled=${off} aria-pressed=${draws && frame === -1}
          title="The average of the shown draws, point by point" onClick=${() => goTo(-1)}>Average</button>
        <button type="button" data-testid="show-reference" disabled=${off} aria-pressed=${frame === 0}
          title="The embedding of the most likely weights, without uncertainty"
            onClick=${() => goTo(0)}>Reference</button>
      </div>
    </div>
  `;
}
