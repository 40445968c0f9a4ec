/** The methods of the service, and their settings. */

import { state } from './store.js';

/** The entry of the chosen method. */
export const chosenMethod = () => methodNamed(state.method);

/** The entry of a method, or undefined. */
export const methodNamed = (name) => state.methods.find((method) => method.name === name);

/** The schemas of a method's settings by name. */
export function settingsOf(name) {
  const { properties } = methodNamed(name).parameters;
  return properties.parameters?.properties ?? properties;
}

/** The settings that differ from the defaults of the method's schema. */
export function changedFrom(method, spec) {
  const properties = settingsOf(method);
  const isOwn = ([name, value]) => name !== 'method' && name in properties && properties[name].default !== value;
  return Object.fromEntries(Object.entries(spec).filter(isOwn));
}

/** The settings of the shown map; also the scale of its columns if the method has no such setting. */
export function settingsHere() {
  const { single, posterior } = state;
  if (!single) return posterior?.spec ?? {};
  const parameters = single.result?.parameters ?? single.body.parameters;
  return { ...parameters, standardize: parameters?.standardize ?? single.body.standardize };
}

/** The methods that make an embedding. */
export const embedders = () => state.methods.filter((method) => method.makes === 'embedding');

/** Reason why a method is unavailable, or an empty string. */
export function hindrance(method) {
  if (method.available === false) return `needs the extra “${method.missing_extra}” where the service runs`;
  if (method.needs_labels && !state.dataset?.has_labels) return 'needs labels';
  return '';
}
