// The daemon stops in the middle of an answer: a text that cannot be sent is kept, and is sent once afterwards.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { api, base, COWHAND, cowhand, FLEET, put, story } from './story.mjs';

await story(async ({ page }) => {
  const { conversation } = await api('POST', 'conversations', { agent: 'anna', text: 'live long' });
  await page.goto(`${base}/chat/${conversation.id}`);
  put('anna.1', 'before the stop\n');
  await page.locator('#m1').getByText('before the stop').waitFor();
  cowhand('stop', '--keep-agents');
  await page.locator('.offline').getByText('Your text is kept').waitFor();
  const text = page.locator('#say');
  await text.fill('said to nobody');
  await text.press('Enter');
  await page.locator('#unsent').getByText('The daemon did not answer').waitFor();
  assert.equal(await text.inputValue(), 'said to nobody');
  assert.equal(await page.locator('#m2').count(), 0, 'a message is shown only when it is stored');
  put('anna.2', 'while nobody listened\n');
  const again = spawn(COWHAND, ['start', '--listen', new URL(base).host], { cwd: FLEET, stdio: 'ignore' });
  try {
    await page.locator('#m1').getByText('while nobody listened').waitFor({ timeout: 40_000 });
    await page.locator('#pulse').waitFor({ state: 'hidden', timeout: 40_000 });
    await text.press('Enter');
    await page.locator('#m2').getByText('Number 1 in the queue').waitFor({ timeout: 40_000 });
    assert.equal(await text.inputValue(), '');
    put('anna.end');
    await page.locator('#m2').getByText('answered').waitFor({ timeout: 40_000 });
    const said = await page.locator('#m1 .answer').innerText();
    for (const line of ['before the stop', 'while nobody listened']) assert.equal(said.split(line).length, 2, `${line} once`);
    assert.equal((await api('GET', `conversations/${conversation.id}`)).messages, 2);
  } finally {
    execFileSync(COWHAND, ['stop'], { cwd: FLEET });
    await new Promise((resolve) => { if (again.exitCode === null) again.once('exit', resolve); else resolve(); });
  }
});
