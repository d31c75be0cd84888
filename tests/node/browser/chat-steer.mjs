// A person sends text to an answer that is being written, and interrupts it.
import assert from 'node:assert/strict';
import { api, base, story } from './story.mjs';

await story(async ({ page }) => {
  const { conversation } = await api('POST', 'conversations', { agent: 'steered', text: 'work' });
  await page.goto(`${base}/chat/${conversation.id}`);
  const answer = page.locator('#m1 .answer');
  await answer.getByText('I heard: work').waitFor();
  const text = page.locator('#say');
  await text.fill('turn left');
  await page.getByRole('button', { name: 'Send to the running answer' }).click();
  await answer.getByText('I heard: turn left').waitFor();
  assert.equal(await text.inputValue(), '');
  await text.fill('stop that, and end');
  await page.getByRole('button', { name: 'Interrupt' }).click();
  await answer.getByText('It was interrupted.').waitFor();
  await answer.getByText('I heard: stop that, and end').first().waitFor();
  await page.locator('#state1').getByText('answered').waitFor();
  // The text of the person is a part of the answer, and not a message of its own.
  assert.equal(await answer.locator('.bubble').getByText('turn left', { exact: true }).count(), 1);
  assert.equal((await api('GET', `conversations/${conversation.id}`)).messages, 1);
  await page.getByRole('button', { name: 'Interrupt' }).waitFor({ state: 'detached' });
});
