/** The start of the page. */

import { boot, watch } from './actions/boot.js';
import { watchFilters } from './actions/filters.js';
import { watchLook } from './actions/look.js';
import { App } from './app.js';
import { listenToKeys } from './keyboard.js';
import { html } from './lib/html.js';
import { onTheme, theme } from './lib/theme.js';
import { set } from './store.js';
import { render } from '../vendor/htm-preact-3.1.1.min.js';

set({ theme: theme() });
onTheme(() => set({ theme: theme() }));
watchLook();
watchFilters();
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
listenToKeys();
watch();
boot();
