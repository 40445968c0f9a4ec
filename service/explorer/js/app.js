/** The page as a whole. */

import { ExportBar } from './panels/export_panel.js';
import { DataPanel, take } from './panels/data_panel.js';
import { Inspector } from './panels/inspector.js';
import { FitPanel, MethodPanel } from './panels/method_panel.js';
import { Banner, Problem } from './panels/problem.js';
import { Progress } from './panels/progress.js';
import { Selection } from './panels/selection.js';
import { KEYS } from './keyboard.js';
import { html, useEffect, useRef, useState } from './lib/html.js';
import { CIRCLES } from './lib/paint.js';
import { onTheme, switchTheme, theme } from './lib/theme.js';
import { set, useStore } from './store.js';
import { Columns } from './views/columns.js';
import { Compare } from './views/compare.js';
import { Empty } from './views/empty.js';
import { Headline } from './views/headline.js';
import { Grid } from './views/grid.js';
import { Stage } from './views/stage.js';
import { Transport } from './views/transport.js';
import { openView } from './actions/link.js';
import { toggleSetUp } from './actions/state.js';

const VIEWS = [
  ['draws', 'One at a time'],
  ['compare', 'Side by side'],
  ['grid', 'All draws'],
];

/** The page. */
export function App() {
  const { isSetUp } = useStore('isSetUp');
  const skip = (event) => {
    event.preventDefault(); // the fragment of the address is the link
    document.getElementById('view').focus();
  };
  return html`
    <a class="skip" href="#view" onClick=${skip}>To the picture</a>
    <${Top} /><${Banner} />
    <div class=${isSetUp ? 'layout' : 'layout folded'}>
      <main id="view" tabindex="-1">
        <div class="screen"><div class="viewbar"><${SetUp} /><${Tabs} /><${Progress} /></div><${Problem} />
          <${Headline} /><${View} /><${ExportBar} /></div><${Selection} /></main>
      <div class="setup" id="setup" role="region" aria-label="Set-up" data-testid="setup" hidden=${!isSetUp}>
        <${DataPanel} /><${MethodPanel} /><${FitPanel} /></div>
      <${Inspector} />
    </div>
    <${Corner} /><${Drag} /><${Keys} /><${Announcer} />
  `;
}

/** The top line; its buttons come last in the order of the keyboard. */
const Top = () => html`<header class="top"><h1><a class="brand" href="./">glle</a></h1>
  <span class="tagline">Maps of data, and how far to believe them</span></header>`;

/** The buttons at the top right. */
function Corner() {
  const [now, setNow] = useState(theme());
  useEffect(() => onTheme(() => setNow(theme())), []);
  return html`<nav class="corner" aria-label="Help and look">
    <button type="button" class="tool" data-testid="keys" aria-label="Keys (?)" title="Keys (?)"
      onClick=${() => set({ dialog: 'keys' })}>?</button>
    <button type="button" class="tool" data-testid="theme"
      aria-label=${now === 'dark' ? 'Use light colors' : 'Use dark colors'}
      title="Dark or light (d)" onClick=${switchTheme}>${now === 'dark' ? '☀' : '☾'}</button>
    <a class="docs" href="docs">API</a>
  </nav>`;
}

/** The button that shows and hides the steps. */
function SetUp() {
  const { isSetUp } = useStore('isSetUp');
  return html`<button type="button" class="fold" data-testid="set-up" aria-expanded=${isSetUp} aria-controls="setup"
    title="Data, method and draws (s)" onClick=${toggleSetUp}><span aria-hidden="true">☰</span> Set-up</button>`;
}

/** The tabs of the views. */
function Tabs() {
  const { view, posterior, dataset } = useStore('view', 'posterior', 'dataset');
  if (!dataset) return null;
  const isOff = (name) => !posterior && name === 'grid';
  const turn = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    event.preventDefault();
    const place = VIEWS.findIndex(([name]) => name === view);
    openView(VIEWS[(place + step + VIEWS.length) % VIEWS.length][0]);
    event.currentTarget.querySelector('[aria-selected=true]')?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label="Views" onKeyDown=${turn}>
    ${VIEWS.map(([name, title]) =>
      html`<button type="button" role="tab" id=${`tab-${name}`} data-testid=${`tab-${name}`}
      aria-selected=${view === name} tabindex=${view === name ? 0 : -1} aria-controls="panel" disabled=${isOff(name)}
      onClick=${() => openView(name)}>${title}</button>`)}
  </div>`;
}

/** The chosen view. */
function View() {
  const { view, reference, single, pending, dataset } = useStore('view', 'reference', 'single', 'pending', 'dataset');
  const shows = reference || single;
  const panel = (content) =>
    html`<div class="view" role="tabpanel" id="panel" aria-labelledby=${`tab-${view}`}>${content}</div>`;
  if (pending) return panel(html`<${Columns} />`);
  return panel(html`
    ${view === 'draws' && !shows && html`<${Empty} />`}
    ${view === 'draws' && shows && html`<${Stage} key=${dataset?.n > CIRCLES} />${!single && html`<${Transport} />`}`}
    ${view === 'grid' && html`<${Grid} />`}
    ${view === 'compare' && html`<${Compare} />`}`);
}

/** Drop target on the whole page. */
function Drag() {
  const [over, setOver] = useState(false);
  useEffect(() => {
    let depth = 0;
    const has = (event) => event.dataTransfer?.types.includes('Files');
    const handlers = {
      dragenter: () => setOver(++depth > 0),
      dragleave: () => setOver(--depth > 0),
      dragover: () => {},
      drop: (event) => {
        depth = 0;
        setOver(false);
        if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
      },
    };
    for (const [name, act] of Object.entries(handlers)) {
      addEventListener(name, (event) => {
        if (!has(event)) return;
        event.preventDefault();
        act(event);
      });
    }
  }, []);
  return over && html`<div class="dropping" aria-hidden="true"><span>Drop the table here</span></div>`;
}

/** Dialog with the keyboard shortcuts. */
function Keys() {
  const { dialog } = useStore('dialog');
  const element = useRef(null);
  useEffect(() => {
    if (dialog === 'keys') element.current?.showModal();
  }, [dialog]);
  if (dialog !== 'keys') return null;
  const close = () => set({ dialog: null });
  return html`<dialog class="keys" ref=${element} onClose=${close} data-testid="keys-dialog" aria-label="Keys">
    <div class="panel-head"><h2>Keys</h2>
      <button type="button" class="link" aria-label="Close" onClick=${close}>×</button></div>
    <dl>${KEYS.map(([key, text]) =>
      html`<dt><kbd>${{ ArrowRight: '→', ArrowLeft: '←', Escape: 'Esc' }[key] ?? key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <p class="quiet">Drag to move the picture, scroll to zoom. To select, press ◌ and draw around points, or hold
      Shift and drag.</p>
  </dialog>`;
}

/** Announcements for screen readers. */
function Announcer() {
  const { announcement } = useStore('announcement');
  return html`<div class="unseen" role="status" aria-live="polite">${announcement}</div>`;
}
