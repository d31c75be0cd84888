// The page of a running job: lines appear in order, and the status changes.
import assert from 'node:assert/strict';
import { base, ended, put, story, trigger } from './story.mjs';

await story(async ({ page }) => {
  const job = trigger('anna', '--prompt', 'talk to me');
  await page.goto(`${base}/jobs/${job}`);
  const lines = page.locator('#lines');
  await lines.getByText('anna was told: talk to me').waitFor();
  const begin = Date.now();
  put('anna.1', 'the first word\n');
  await lines.getByText('the first word').waitFor();
  const first = Date.now() - begin;
  // Each type of message has its own form.
  put('anna.2', [
    { type: 'assistant', content: 'I shall **look** at it.' },
    { type: 'tool_use', tool_name: 'Bash', tool_use_id: 't', input: { command: 'ls -l', description: 'list' } },
    { type: 'tool_result', tool_use_id: 't', result: 'a.txt\nb.txt', success: true },
    { type: 'tool_result', tool_use_id: 'u', error: 'denied', success: false },
    { type: 'error', message: 'it hurts' },
  ].map((line) => `${JSON.stringify(line)}\n`).join(''));
  await lines.locator('.l-error').getByText('it hurts').waitFor();
  const call = lines.locator('.l-tool details');
  assert.equal(await call.getAttribute('open'), null, 'closed until asked for');
  assert.match(await call.locator('summary').textContent(), /→ Bash\s+ls -l/);
  await call.locator('summary').click();
  assert.match(await call.locator('pre').textContent(), /"command": "ls -l"/);
  assert.match(await lines.locator('.l-result-bad').textContent(), /✗ failed denied/);
  assert.match(await page.textContent('#output-where'), /^7 lines$/);
  // Many lines at a time appear in order, each once.
  put('anna.3', Array.from({ length: 2000 }, (_, i) => `number ${i}\n`).join(''));
  await lines.getByText('number 1999', { exact: true }).waitFor();
  const ids = await lines.locator('.l').evaluateAll((all) => all.map((line) => Number(line.id.slice(1))));
  assert.deepEqual(ids, Array.from({ length: 2007 }, (_, i) => i + 1));
  put('anna.end');
  await page.locator('#head').getByText('completed').waitFor();
  await lines.getByText('anna is done').waitFor();
  await page.locator('#following').waitFor({ state: 'detached' });
  await page.locator('#head').getByRole('button', { name: 'Retry' }).waitFor();
  console.log(`a line was on the page ${first} ms after it was written`);
  // The raw view shows the same lines unchanged.
  await page.getByRole('link', { name: 'Raw' }).click();
  await page.locator('#lines .l-raw').first().waitFor();
  assert.match(await page.locator('#lines').textContent(), /"type":"system".*anna is done/s);
  // The page of a job shows its cost.
  await page.goto(`${base}/jobs/${ended('paid')}`);
  assert.match(await page.textContent('#head'), /\$0\.42.*Turns3.*All is well\./s);
});
