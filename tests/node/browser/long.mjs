// A hundred thousand lines of output: each page has a thousand lines, and live output keeps a limited number of lines.
import assert from 'node:assert/strict';
import { base, put, story, trigger } from './story.mjs';

const LINES = 100_000;
await story(async ({ page }) => {
  const job = trigger('anna', '--prompt', 'talk a lot');
  await page.goto(`${base}/jobs/${job}`);
  await page.locator('#lines').getByText('anna was told').waitFor();
  await page.evaluate(() => {
    window.longest = 0;
    window.blocked = 0;
    window.most = 0;
    const lines = document.querySelector('#lines');
    new MutationObserver(() => { window.most = Math.max(window.most, lines.childElementCount); }).observe(lines, { childList: true });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) { window.longest = Math.max(window.longest, entry.duration); window.blocked += entry.duration - 50; }
    }).observe({ type: 'longtask' });
  });
  // All lines pass through the page while the job runs.
  const begin = Date.now();
  put('anna.1', Array.from({ length: LINES }, (_, i) => `line ${i} of a long story that an agent tells about its work\n`).join(''));
  await page.locator('#lines').getByText(`line ${LINES - 1} of`).waitFor({ timeout: 100_000 });
  const streamed = Date.now() - begin;
  // A page that is scrolled to its end stays at the end. A page that is scrolled up stays where it is.
  await page.waitForFunction(() => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 100);
  await page.mouse.wheel(0, -5000);
  await page.waitForFunction(() => window.innerHeight + window.scrollY < document.documentElement.scrollHeight - 2000);
  put('anna.2', 'one more word\n');
  await page.locator('#lines').getByText('one more word').waitFor({ state: 'attached' });
  assert.ok(await page.evaluate(() => window.innerHeight + window.scrollY < document.documentElement.scrollHeight - 2000));
  const live = await page.evaluate(() => ({ lines: window.most, longest: Math.round(window.longest), blocked: Math.round(window.blocked) }));
  assert.ok(live.lines > 1000 && live.lines <= 3000, `${live.lines} lines were kept at most`);
  assert.match(await page.textContent('#output-where'), /of 100002/);
  put('anna.end');
  await page.locator('#head').getByText('completed').waitFor();

  // After the end of the job, the last page and the other pages can be opened.
  const opened = Date.now();
  await page.goto(`${base}/jobs/${job}`);
  const load = Date.now() - opened;
  assert.equal(await page.locator('#lines .l').count(), 1000);
  await page.locator('#lines').getByText('anna is done').waitFor();
  await page.getByRole('link', { name: 'Earlier' }).click();
  await page.waitForURL(/after=98003/);
  assert.match(await page.textContent('#output-where'), /lines 98004 to 99003 of 100003/);
  await page.getByRole('link', { name: 'First' }).click();
  await page.waitForURL(/after=0/);
  await page.getByText('line 0 of').waitFor();
  assert.equal(await page.locator('#lines .l').count(), 1000);
  // Measure the slowest frame while scrolling through a thousand lines.
  const frame = await page.evaluate(async () => {
    let slowest = 0;
    let before = performance.now();
    for (let step = 0; step < 60; step += 1) {
      window.scrollBy(0, 400);
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      slowest = Math.max(slowest, now - before);
      before = now;
    }
    return Math.round(slowest);
  });
  // The measured times are only printed (see docs/dashboard.md). The assertions above check numbers of lines.
  console.log(JSON.stringify({ streamed, ...live, load, frame }));
});
