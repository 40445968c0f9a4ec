/** The plot of regl-scatterplot, whose properties and events are in its documentation. */
export default function createScatterplot(properties: Record<string, unknown>): any;
