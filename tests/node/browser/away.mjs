// While the daemon does not run, the page is dimmed, shows since when, and stops its clocks. A click shows the reason.
import assert from 'node:assert/strict';
import { base, cowhand, story, trigger } from './story.mjs';

await story(async ({ page }) => {
  const job = trigger('anna', '--prompt', 'run for long');
  await page.clock.install();
  await page.goto(`${base}/jobs/${job}`);
  const clock = page.locator('#head time[data-elapsed]');
  await clock.waitFor();
  const before = await clock.textContent();
  await page.clock.fastForward(120_000);
  assert.notEqual(await clock.textContent(), before, 'the clock runs while the daemon does');
  // The form of the web chat is not dimmed, because its text is kept; so each part is dimmed by itself.
  const opacity = () => page.locator('main > *').first().evaluate((part) => getComputedStyle(part).opacity);
  assert.equal(await opacity(), '1');
  cowhand('stop', '--keep-agents');
  await page.locator('#pulse').getByText(/Not connected since .*\d\d:\d\d:\d\d/).waitFor();
  assert.ok(Number(await opacity()) < 1, 'the page is dimmed');
  const stopped = await clock.textContent();
  await page.clock.fastForward(600_000);
  assert.equal(await clock.textContent(), stopped, 'the clock stands still');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.locator('#confirm').getByRole('button', { name: 'Yes' }).click();
  await page.locator('#said').getByText('The daemon does not answer.').waitFor();
  assert.doesNotMatch(await page.locator('#said').textContent(), /fetch/i);
});
