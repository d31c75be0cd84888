// A message that arrives in pieces: its line grows, and the complete message is shown once.
import assert from 'node:assert/strict';
import { base, put, story, trigger } from './story.mjs';

const said = (content, partial) => `${JSON.stringify({ type: 'assistant', content, ...(partial && { partial }) })}\n`;

await story(async ({ page }) => {
  put('anna.1', said('One <b>', true) + said('word', true));
  const job = trigger('anna', '--prompt', 'speak');
  await page.goto(`${base}/jobs/${job}`);
  const grown = page.locator('#lines .l-partial .c');
  await page.waitForFunction(() => document.querySelector('.l-partial .c')?.textContent === 'One <b>word');
  put('anna.2', said(' after', true));
  await page.waitForFunction(() => document.querySelector('.l-partial .c')?.textContent === 'One <b>word after');
  // A page that is loaded later shows all pieces.
  await page.reload();
  await page.waitForFunction(() => document.querySelector('.l-partial .c')?.textContent === 'One <b>word after');
  put('anna.3', said(' the other', true));
  await page.waitForFunction(() => document.querySelector('.l-partial .c')?.textContent === 'One <b>word after the other');
  assert.equal(await grown.count(), 1);
  put('anna.4', said('One <b>word after the other.'));
  await page.locator('#lines .l-assistant:not(.l-partial)').getByText('One <b>word after the other.').waitFor();
  assert.equal(await grown.count(), 0);
  put('anna.end');
  await page.locator('#head').getByText('completed').waitFor();
  await page.reload();
  assert.equal((await page.textContent('#lines')).split('the other').length, 2, 'told once');
});
