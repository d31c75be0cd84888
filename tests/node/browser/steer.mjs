// The buttons cancel, retry and fork a job.
import assert from 'node:assert/strict';
import { base, cowhand, ended, put, story, trigger } from './story.mjs';

await story(async ({ page }) => {
  const job = trigger('anna', '--prompt', 'never stop');
  await page.goto(`${base}/jobs/${job}`);
  await page.locator('#lines').getByText('anna was told').waitFor();
  const head = page.locator('#head');
  const press = (name) => page.locator('#head').getByRole('button', { name }).click();
  const answer = (name) => page.locator('#confirm').getByRole('button', { name }).click();
  // The answer No changes nothing.
  await press('Cancel');
  await answer('No');
  assert.equal(JSON.parse(cowhand('job', job, '--json')).status, 'running');
  await press('Cancel');
  await answer('Yes');
  await head.getByText('cancelled', { exact: true }).waitFor();
  assert.equal(JSON.parse(cowhand('job', job, '--json')).status, 'cancelled');
  // After Retry, the page of the new job opens.
  put('anna.end');
  await press('Retry');
  await page.waitForURL((url) => url.pathname.startsWith('/jobs/') && !url.pathname.endsWith(job));
  const retried = page.url().split('/').at(-1);
  assert.equal(JSON.parse(cowhand('job', retried, '--json')).retry_of, job);
  await page.locator('#head').getByText('completed').waitFor();
  // Fork the job with another prompt.
  const parent = ended('quick', '--prompt', 'first line\nsecond line\n');
  await page.goto(`${base}/jobs/${parent}`);
  await press('Fork');
  const prompt = page.locator('#fork textarea');
  assert.match(await prompt.inputValue(), /second line/);
  await prompt.fill('first line\nanother line\n');
  await page.locator('#fork').getByRole('button', { name: 'Fork' }).click();
  await page.waitForURL((url) => url.pathname.startsWith('/jobs/') && !url.pathname.endsWith(parent));
  const fork = page.url().split('/').at(-1);
  const record = JSON.parse(cowhand('job', fork, '--json'));
  assert.equal(record.forked_from, parent);
  assert.match(record.prompt, /another line/);
  await page.locator('#head').getByText('completed').waitFor();
  await page.getByRole('link', { name: 'what is different' }).click();
  assert.match(await page.locator('.d-del').first().textContent(), /second line/);
  assert.match(await page.locator('.d-ins').first().textContent(), /another line/);
  // The page shows the message of a refused request.
  const gone = trigger('bert', '--prompt', 'x');
  await page.goto(`${base}/jobs/${gone}`);
  await page.locator('#lines').getByText('bert was told').waitFor();
  // The request is redirected to a job that does not exist.
  await page.route('**/cancel', (route) => route.continue({ url: `${base}/api/v1/jobs/job-2000-01-01-aaaaaa/cancel` }));
  await press('Cancel');
  await answer('Yes');
  await page.locator('#said').getByText('job-2000-01-01-aaaaaa').waitFor();
  put('bert.end');
});
