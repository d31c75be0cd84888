// A person talks to an agent: the message is stored, the answer is streamed with its tools, and other messages wait.
import assert from 'node:assert/strict';
import { api, base, cowhand, ended, put, story } from './story.mjs';

const lines = (...messages) => `${messages.map((message) => JSON.stringify(message)).join('\n')}\n`;

await story(async ({ browser, page }) => {
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(`${base}/chat`);
  await page.getByText('There are no conversations yet').waitFor();
  await page.getByRole('link', { name: 'New conversation' }).click();
  await page.locator('.choices').getByRole('link', { name: 'anna' }).click();
  const text = page.locator('#say');
  await text.fill('Look at');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('the **build**.');
  // The text survives a reload of the page.
  await page.reload();
  assert.equal(await text.inputValue(), 'Look at\nthe **build**.');
  await text.press('Enter');
  await page.waitForURL((url) => /^\/chat\/[0-9a-f]{32}$/.test(url.pathname));
  assert.equal(await page.locator('h1').textContent(), 'Look at');
  assert.equal(await page.locator('#m1 .bubble').textContent(), 'Look at\nthe **build**.');
  assert.equal(await text.inputValue(), '');
  await page.locator('#m1').getByText('running').waitFor();
  // The answer appears while the agent writes it.
  put('anna.1', lines(
    { type: 'assistant', content: 'I **look** at it:\n\n- one\n- two\n\n```\n' + 'x'.repeat(300) + '\n```' },
    { type: 'tool_use', tool_name: 'Bash', tool_use_id: 't1', input: { command: 'cargo build' } },
  ));
  await page.locator('#m1 .md strong').getByText('look').waitFor();
  const tool = page.locator('#m1 details.tool');
  await tool.getByText('cargo build').first().waitFor();
  assert.equal(await tool.getAttribute('open'), null, 'tools are folded');
  await tool.locator('summary').click();
  // A second tab and a reload show the same.
  const second = await page.context().newPage();
  await second.goto(page.url());
  await second.locator('#m1 .md strong').getByText('look').waitFor();
  await page.reload();
  await page.locator('#m1 .md strong').getByText('look').waitFor();
  put('anna.2', lines({ type: 'tool_result', tool_use_id: 't1', result: 'Finished', success: true }, { type: 'assistant', content: 'It builds.' }));
  for (const tab of [page, second]) await tab.locator('#m1').getByText('It builds.').waitFor();
  // A code block scrolls, and the page does not.
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  // Another message waits, and a double click sends it once.
  await text.fill('And then?');
  await page.getByRole('button', { name: 'Send' }).dblclick();
  await page.locator('#m2').getByText('Number 1 in the queue').waitFor();
  await text.fill('Never mind.');
  await text.press('Enter');
  await page.locator('#m3').getByText('Number 2 in the queue').waitFor();
  await second.locator('#m3').getByText('Number 2 in the queue').waitFor();
  const conversation = page.url().split('/').at(-1);
  assert.equal((await api('GET', `conversations/${conversation}`)).messages, 3);
  await page.locator('#m2').getByRole('button', { name: 'Cancel' }).click();
  await page.locator('#m2').getByText('It was cancelled.').waitFor();
  await second.locator('#m3').getByText('Number 1 in the queue').waitFor();
  // Stop ends the answer; the next message runs.
  await page.locator('#m1').getByRole('button', { name: 'Stop' }).click();
  await page.locator('#confirm').getByRole('button', { name: 'Yes' }).click();
  await page.locator('#m1').getByText('It was cancelled.').waitFor();
  assert.equal(await page.locator('#m1 details.tool').count(), 1, 'the tool has its result');
  put('anna.end');
  await page.locator('#m3').getByText('answered').waitFor();
  await page.locator('#m3').getByText('anna is done').waitFor();
  // A new session is marked in the conversation.
  await page.getByRole('button', { name: 'New session' }).click();
  await page.locator('#confirm').getByRole('button', { name: 'Yes' }).click();
  for (const tab of [page, second]) await tab.locator('#session-next').waitFor();
  await page.goto(`${base}/chat`);
  await page.locator('.conversations').getByText('3 messages').waitFor();
  // A finished job is continued.
  const job = ended('paid');
  await page.goto(`${base}/jobs/${job}`);
  await page.getByRole('link', { name: 'Continue in chat' }).click();
  await page.getByText('All is well.').waitFor();
  await text.fill('What did it cost?');
  await text.press('Enter');
  await page.waitForURL((url) => /^\/chat\/[0-9a-f]{32}$/.test(url.pathname));
  await page.locator('#m1').getByText('answered').waitFor();
  await page.locator('.page-head').getByText(`Continues`).waitFor();
  await page.locator('#m1').getByRole('link', { name: 'job', exact: true }).click();
  await page.getByRole('link', { name: 'Open in chat' }).click();
  await page.locator('#m1 .bubble').getByText('What did it cost?').waitFor();
  // A token that can only read shows the conversation without a form.
  const [cookie] = await page.context().cookies();
  const token = cowhand('token', 'create', 'reader', '--scope', 'read').split('\n').at(-1);
  const reading = await browser.newContext();
  await reading.addCookies([{ ...cookie, value: token }]);
  const reader = await reading.newPage();
  await reader.goto(`${base}/chat/${conversation}`);
  await reader.locator('#m3').getByText('anna is done').waitFor();
  await reader.getByText('Your token can only read').waitFor();
  assert.equal(await reader.locator('#composer, .exchange button, .page-head button').count(), 0);
});
