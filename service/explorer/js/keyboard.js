/** Keyboard shortcuts of the page, inactive in an input field. */

import { choosePoints } from './actions/selection.js';
import { openView } from './actions/link.js';
import { toggleSetUp } from './actions/state.js';
import { switchTheme } from './lib/theme.js';
import { onStage } from './views/stage.js';
import { goTo, step, togglePlay } from './views/transport.js';
import { dimension } from './lib/frames.js';
import { turnBy } from './plot/turning.js';
import { set, state } from './store.js';

const STEP = 0.15; // radians of a turn by a key

/** @type {Record<import('./store.js').State['shape'], import('./store.js').State['shape']>} */
const NEXT_SHAPE = { none: 'ellipse', ellipse: 'density', density: 'none' };

/** @type {[string, string, () => unknown][]} Each key with its label and its action. */
export const KEYS = [
  ['Space', 'Play or pause', togglePlay],
  ['ArrowRight', 'Next draw', () => step(1)],
  ['ArrowLeft', 'Previous draw', () => step(-1)],
  ['Home', 'Average of the draws', () => goTo(-1)],
  ['1', 'One draw at a time', () => openView('draws')],
  ['2', 'Draws side by side', () => state.posterior && openView('grid')],
  ['3', 'Methods side by side', () => state.dataset && openView('compare')],
  ['s', 'Set-up', toggleSetUp],
  ['e', 'Points, regions, density', () => set({ shape: NEXT_SHAPE[state.shape] })],
  ['r', 'Turn three dimensions by dragging, or not', () => set({ isTurning: !state.isTurning })],
  ['l', 'Select by drawing around points', () => set({ lassoing: !state.lassoing })],
  ['+', 'Zoom in', () => onStage.plot?.zoom(1.3)],
  ['-', 'Zoom out', () => onStage.plot?.zoom(1 / 1.3)],
  ['0', 'Whole picture', () => onStage.plot?.reset()],
  ['Escape', 'Clear the selection', escape],
  ['d', 'Dark or light', switchTheme],
  ['?', 'These keys', () => set({ dialog: state.dialog === 'keys' ? null : 'keys' })],
];

function escape() {
  if (state.dialog) set({ dialog: null });
  else choosePoints([]);
}

/** Listen for the keys. */
export function listenToKeys() {
  addEventListener('keydown', (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const turn = { ArrowRight: [-STEP, 0], ArrowLeft: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    if (event.altKey && turn && dimension() === 3 && onStage.xy) {
      event.preventDefault(); // of the browser's history
      turnBy(...turn);
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const name = event.key === ' ' ? 'Space' : event.key;
    const inField = target.matches?.('input, select, textarea');
    if (inField && name !== 'Escape') return;
    if (name === 'Space' && target.matches?.('button, summary, a, [role=button]')) return;
    const found = KEYS.find(([key]) => key === name);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
}
