// The list of jobs: the address contains the filters, and the list has pages.
import assert from 'node:assert/strict';
import { base, cowhand, ended, story } from './story.mjs';

await story(async ({ page }) => {
  await page.goto(`${base}/jobs`);
  const before = await page.locator('#jobs tbody tr').count();
  for (let i = 0; i < 55; i += 1) cowhand('trigger', 'quick', '--prompt', i === 7 ? 'the needle in it' : `hay ${i}`);
  ended('breaks');
  await page.goto(`${base}/jobs`);
  const rows = page.locator('#jobs tbody tr');
  assert.equal(await rows.count(), 50);
  await page.getByRole('link', { name: 'Older' }).click();
  await page.waitForURL(/after=/);
  assert.equal(await rows.count(), 6 + before);
  await page.getByRole('link', { name: 'Newest' }).click();
  await page.getByLabel('Status').selectOption('failed');
  await page.waitForURL(/status=failed/);
  assert.equal(await rows.count(), 1);
  assert.match(await rows.textContent(), /breaks.*the network is down/);
  // The same address shows the same list again.
  await page.reload();
  assert.equal(await page.getByLabel('Status').inputValue(), 'failed');
  assert.equal(await rows.count(), 1);
  await page.getByRole('link', { name: 'Clear' }).click();
  await page.getByLabel('Search').fill('NEEDLE');
  await page.keyboard.press('Enter');
  await page.waitForURL(/search=NEEDLE/);
  assert.equal(await rows.count(), 1);
  await page.getByLabel('Agent').selectOption('breaks');
  await page.getByText('No job matches the filter.').waitFor();
  // A wrong address is refused with a page.
  const answer = await page.goto(`${base}/jobs?status=nonsense`);
  assert.equal(answer.status(), 400);
  await page.getByText('Back to the fleet').waitFor();
  for (const path of ['/jobs/job-2000-01-01-aaaaaa', '/jobs/..%2f..%2fetc', '/agents/nobody', '/schedules/quick/none']) {
    const { status } = { status: (await page.goto(base + path)).status() };
    assert.ok(status === 404 || status === 400, `${path} ${status}`);
    await page.getByText('Back to the fleet').waitFor();
  }
});
