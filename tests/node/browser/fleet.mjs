// The page of the fleet follows three running agents without a reload.
import assert from 'node:assert/strict';
import { base, ended, put, story, trigger } from './story.mjs';

await story(async ({ page }) => {
  const running = page.locator('#running');
  await running.getByText('Nothing runs right now').waitFor();
  const jobs = ['anna', 'bert', 'cleo'].map((name) => trigger(name, '--prompt', `the task of ${name}`));
  for (const name of ['anna', 'bert', 'cleo']) {
    await running.getByText(`${name} was told: the task of ${name}`).waitFor();
  }
  assert.equal(await running.locator('li').count(), 3);
  assert.match(await page.textContent('#head'), /3 running/);
  // The page shows the newest line of output, and its clocks advance.
  put('bert.1', 'bert has found something\n');
  await running.getByText('bert has found something').waitFor();
  const clock = running.locator('time').first();
  const before = await clock.textContent();
  await page.waitForFunction(([element, text]) => element.textContent !== text, [await clock.elementHandle(), before]);
  // The page shows that one job ends and that another job fails.
  put('anna.end');
  await running.getByText('anna', { exact: true }).waitFor({ state: 'detached' });
  assert.equal(await running.locator('li').count(), 2);
  ended('breaks');
  await page.locator('#failed').getByText('the network is down').waitFor();
  ended('paid');
  await page.locator('#head').getByText('$0.42 today').waitFor();
  // The page shows the next firings and each agent.
  await page.locator('#next').getByText('nightly').waitFor();
  assert.equal(await page.locator('#agents tbody tr').count(), 9);
  await running.locator(`a[href="/jobs/${jobs[1]}"]`).click();
  await page.waitForURL(`${base}/jobs/${jobs[1]}`);
  put('bert.end');
  put('cleo.end');
});
