// The job of a delivery appears on the open list of jobs.
import assert from 'node:assert/strict';
import { base, story } from './story.mjs';

await story(async ({ page }) => {
  await page.goto(`${base}/jobs?trigger_type=webhook`);
  await page.getByText('No job matches the filter.').waitFor();
  const begin = Date.now();
  const answer = await fetch(`${base}/hooks/quick/hook`, { method: 'POST', body: '{"word":"hello from outside"}' });
  assert.equal(answer.status, 202);
  const { job } = await answer.json();
  await page.locator(`#jobs a[href="/jobs/${job}"]`).waitFor();
  console.log(`the job was on the page ${Date.now() - begin} ms after the delivery was sent`);
  await page.locator('#jobs').getByText('completed').waitFor();
  await page.locator(`#jobs a[href="/jobs/${job}"]`).click();
  await page.locator('#lines').getByText('hello from outside').waitFor();
});
