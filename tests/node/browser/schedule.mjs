// The page of a schedule: its next firings, disabling and enabling, firing by hand, and its ledger.
import assert from 'node:assert/strict';
import { base, cowhand, story } from './story.mjs';

await story(async ({ page }) => {
  await page.goto(`${base}/schedules/quick/nightly`);
  assert.equal(await page.locator('#next li').count(), 10);
  // The time of the next firing is shown in the time zone of the browser.
  const first = page.locator('#next li time').first();
  const expected = await first.evaluate((time) => new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false }).format(new Date(time.dateTime)));
  assert.equal(await first.textContent(), expected);
  assert.match(await first.getAttribute('title'), /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/);
  const status = () => JSON.parse(cowhand('schedule', 'show', 'quick/nightly', '--json')).status;
  await page.getByRole('button', { name: 'Disable' }).click();
  await page.getByRole('button', { name: 'Enable' }).waitFor();
  await page.locator('#head').getByText('disabled').first().waitFor();
  assert.equal(status(), 'disabled');
  assert.equal(await page.locator('#next').count(), 0);
  await page.getByRole('button', { name: 'Enable' }).click();
  await page.getByRole('button', { name: 'Disable' }).waitFor();
  assert.equal(status(), 'idle');
  await page.locator('#next li').first().waitFor();
  await page.getByRole('button', { name: 'Fire now' }).click();
  await page.waitForURL(/\/jobs\/job-/);
  await page.locator('#head').getByText('completed').waitFor();
  // The head and the lines are updated independently.
  await page.locator('#lines').getByText("Look over the day's work.").waitFor();
  const [fired] = JSON.parse(cowhand('jobs', '--limit', '1', '--json'));
  assert.equal(fired.trigger_type, 'web');
  await page.goto(`${base}/schedules/quick/nightly`);
  assert.match(await page.locator('#ledger tbody tr').first().textContent(), /completed/);
  // The open page shows that the command line disabled the schedule.
  cowhand('schedule', 'disable', 'quick/nightly');
  await page.getByRole('button', { name: 'Enable' }).waitFor();
  // The timeline shows the firing.
  await page.goto(`${base}/timeline`);
  const lanes = page.locator('.lane:not(.axis)');
  assert.equal(await lanes.count(), 7);
  const nightly = lanes.filter({ hasText: 'nightly' });
  assert.match(await nightly.locator('svg.track').getAttribute('aria-label'), /1 done, 0 failed, 0 cancelled, 0 running, 0 waiting, 0 skipped, 0 missed, 0 coalesced, 0 planned/);
  assert.equal(await nightly.locator('.m-done').count(), 1);
  assert.ok(await lanes.filter({ hasText: 'hourly' }).locator('.m-planned').count() > 10);
});
