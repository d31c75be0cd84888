// Without scripts, the pages can be read.
import assert from 'node:assert/strict';
import { base, put, story } from './story.mjs';
import { fill } from './places.mjs';

await story(async ({ browser, page }) => {
  const places = await fill();
  const storageState = await page.context().storageState();
  // Nothing that needs a script is shown, and times are UTC.
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
