// Dark and light, wide and narrow, with and without script.
import assert from 'node:assert/strict';
import { base, put, story } from './story.mjs';
import { fill } from './places.mjs';

await story(async ({ browser, page }) => {
  const places = fill();
  const storageState = await page.context().storageState();
  const grounds = {};
  for (const colorScheme of ['light', 'dark']) {
    for (const width of [1280, 390]) {
      const context = await browser.newContext({ storageState, colorScheme, viewport: { width, height: 844 } });
      const tab = await context.newPage();
      for (const [name, path] of Object.entries(places)) {
        await tab.goto(base + path);
        const [wide, ground] = await tab.evaluate(() => [document.documentElement.scrollWidth, getComputedStyle(document.documentElement).backgroundColor]);
        assert.ok(wide <= width, `${name} is ${wide} wide on a screen of ${width}`);
        grounds[colorScheme] = ground;
      }
      await context.close();
    }
  }
  const brightness = (colour) => colour.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
  assert.ok(brightness(grounds.light) > 700 && brightness(grounds.dark) < 100, JSON.stringify(grounds));

  // Without script: all can be read, nothing that needs it is there, times are UTC.
  const context = await browser.newContext({ storageState, javaScriptEnabled: false, timezoneId: 'Asia/Tokyo' });
  const plain = await context.newPage();
  await plain.goto(`${base}/jobs`);
  assert.ok(await plain.locator('#jobs tbody tr').count() >= 5);
  await plain.goto(base + places.job);
  assert.match(await plain.textContent('#lines'), /Looking\..*main\.rs/s);
  assert.equal(await plain.locator('button:visible').count(), 0);
  const time = plain.locator('#head time[data-at]').first();
  const [utc, shown] = [await time.getAttribute('datetime'), await time.textContent()];
  assert.equal(utc.slice(11, 19), shown.slice(-8));
  await plain.getByText('Scripts are turned off').waitFor();
  put('anna.end');
  put('bert.end');
});
