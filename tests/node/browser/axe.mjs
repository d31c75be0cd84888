// The accessibility checks of axe-core.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const SOURCE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// The rules whose result depends on the colour scheme.
const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];

// Widths and colour schemes in which pages are checked: in light with all rules, in dark with `COLOUR_RULES`.
export const APPEARANCES = [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark']];

// Shows the loaded page in this width and colour scheme.
export async function show(tab, [width, colorScheme]) {
  await tab.setViewportSize({ width, height: 844 });
  await tab.emulateMedia({ colorScheme });
}

// Returns the serious and critical violations on the page as it is shown. The tab has to bypass the content security
// policy of the dashboard.
export async function violations(tab, name, [width, colorScheme]) {
  if (!await tab.evaluate(() => 'axe' in window)) await tab.evaluate(SOURCE);
  const rules = colorScheme === 'dark' ? { runOnly: { type: 'rule', values: COLOUR_RULES } } : {};
  const result = await tab.evaluate((options) => window.axe.run({ resultTypes: ['violations'], ...options }), rules);
  const passed = result.passes.map(({ id }) => id);
  assert.ok(passed.includes('color-contrast'), `${name} ${colorScheme} ${width}: colours were checked`);
  assert.ok(colorScheme === 'dark' || passed.length > 10, `${name} ${width}: the other rules were checked`);
  return result.violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${name} ${colorScheme} ${width}: ${id} ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
}
