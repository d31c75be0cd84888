// Every page in both colour schemes and widths: nothing overflows, and axe-core finds nothing serious or critical.
import assert from 'node:assert/strict';
import { APPEARANCES, show, violations } from './axe.mjs';
import { fill } from './places.mjs';
import { base, put, story } from './story.mjs';

const brightness = (colour) => colour.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);

await story(async ({ browser, page }) => {
  const places = await fill();
  const storageState = await page.context().storageState();
  // The content security policy would block axe-core.
  const context = await browser.newContext({ storageState, bypassCSP: true });
  const tab = await context.newPage();
  const found = [];
  let checked = 0;
  const check = async (name) => {
    for (const appearance of APPEARANCES) {
      const [width, colorScheme] = appearance;
      await show(tab, appearance);
      const [wide, ground] = await tab.evaluate(() => [document.documentElement.scrollWidth, getComputedStyle(document.documentElement).backgroundColor]);
      assert.ok(wide <= width, `${name} is ${wide} wide on a screen of ${width}`);
      assert.ok(colorScheme === 'light' ? brightness(ground) > 700 : brightness(ground) < 100, `${name} in ${colorScheme}: ${ground}`);
      found.push(...await violations(tab, name, appearance));
      checked += 1;
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
  assert.deepEqual(found, []);
  console.log(`${checked} appearances checked`);
  put('anna.end');
  put('bert.end');
});
