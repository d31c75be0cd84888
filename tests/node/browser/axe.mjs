// axe-core finds nothing serious or critical, on any page, in light and in dark, wide and narrow.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { base, put, story } from './story.mjs';
import { fill } from './places.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
await story(async ({ browser, page }) => {
  const places = fill();
  const storageState = await page.context().storageState();
  const found = [];
  let checked = 0;
  for (const [colorScheme, width] of [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390]]) {
    // Our own policy would not let the checker run.
    const context = await browser.newContext({ storageState, colorScheme, viewport: { width, height: 844 }, bypassCSP: true });
    const tab = await context.newPage();
    const check = async (name) => {
      await tab.evaluate(axe);
      const { violations, passes } = await tab.evaluate(() => window.axe.run());
      assert.ok(passes.length > 10, `${name}: the checker has looked`);
      checked += 1;
      for (const { id, impact, nodes } of violations) {
        if (impact === 'serious' || impact === 'critical') found.push(`${name} ${colorScheme} ${width}: ${id} ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
      }
    };
    for (const [name, path] of Object.entries(places)) {
      await tab.goto(base + path);
      await check(name);
    }
    await tab.goto(base + places['job-running']);
    await tab.getByRole('button', { name: 'Fork' }).click();
    await check('fork dialog');
    await tab.goto(base);
    await tab.keyboard.press('?');
    await check('keys dialog');
    await context.clearCookies();
    await tab.goto(base);
    await check('stranger');
    await context.close();
  }
  assert.deepEqual(found, []);
  console.log(`${checked} pages checked`);
  put('anna.end');
  put('bert.end');
});
