// Asks of an agent: the pages of the fleet and of the job show them, and a person answers with mouse or keyboard.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { APPEARANCES, show, violations } from './axe.mjs';
import { FLEET, base, cowhand, put, story, trigger } from './story.mjs';

const job = trigger('asker', '--prompt', 'Ask.');
for (const end = Date.now() + 60_000; !existsSync(join(FLEET, 'asker.token'));) {
  if (Date.now() > end) throw new Error('the agent did not start');
  await new Promise((resolve) => { setTimeout(resolve, 20); });
}
const [socketPath, token] = readFileSync(join(FLEET, 'asker.token'), 'utf8').trim().split('\n');

// Sends a request with the token of the job, as the agent does.
function say(method, path, given) {
  const options = { socketPath, method, path: `/api/v1/jobs/${job}${path}`, headers: { host: 'x', authorization: `Bearer ${token}`, 'content-type': 'application/json' } };
  return new Promise((resolve, reject) => {
    const asked = request(options, (answer) => {
      let text = '';
      answer.on('data', (part) => { text += part; });
      answer.on('end', () => resolve({ status: answer.statusCode, body: JSON.parse(text) }));
    });
    asked.on('error', reject);
    asked.end(given && JSON.stringify({ attempt: 1, ...given }));
  });
}
const heard = async (number) => (await say('GET', `/asks/${number}?wait=20`)).body;

await story(async ({ browser, page }) => {
  const script = '</code></pre><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">';
  const nasty = `${script} \u001b[31mred\u001b[0m \u202Egnp.exe\u202C " data-post="/api/v1/stop ${'w'.repeat(900)}`;
  const part = page.locator('#asks');
  await page.goto(`${base}/`);
  await page.locator('#running li').first().waitFor();
  assert.equal(await part.count(), 0, 'nobody waits yet');

  // New asks appear on the open page.
  const made = await say('POST', '/asks', { key: '1', tool: 'Bash', input: { command: 'git push origin main' } });
  assert.equal(made.body.verdict, 'asked', JSON.stringify(made));
  await part.getByText('git push origin main').waitFor();
  await say('POST', '/asks', { key: '2', tool: `Bash${script}`, input: { command: nasty } });
  await say('POST', '/asks', { key: '3', tool: 'Write', input: { file_path: '/srv/app/config.yaml', content: 'port: 80\n'.repeat(120) } });
  await say('POST', '/asks', { key: '4', question: `Which of the two? ${script}` });
  await part.locator('li').nth(3).waitFor();
  await page.waitForFunction(() => document.title.startsWith('(4) '));
  assert.equal(await part.locator('li').count(), 4);

  const storageState = await page.context().storageState();
  const look = async (path, name) => {
    const context = await browser.newContext({ storageState, bypassCSP: true });
    const tab = await context.newPage();
    await tab.goto(base + path);
    await tab.locator('#asks li').first().waitFor();
    for (const appearance of APPEARANCES) {
      const [width, colorScheme] = appearance;
      await show(tab, appearance);
      const [title, odd, wide, text] = await tab.evaluate(() => [document.title, document.querySelectorAll('main img, main script, [data-post="/api/v1/stop"]').length, document.documentElement.scrollWidth, document.body.textContent]);
      assert.notEqual(title, 'owned', name);
      assert.equal(odd, 0, name);
      assert.ok(wide <= width, `${name} is ${wide} wide of ${width}`);
      assert.doesNotMatch(text, /[\u001b\u202a-\u202e\u2066-\u2069]/, name);
      assert.deepEqual(await violations(tab, name, appearance), []);
      if (process.env.SHOTS) await tab.screenshot({ path: join(process.env.SHOTS, `${name}-${colorScheme}-${width}.png`), fullPage: true });
    }
    await context.close();
  };
  await look('/', 'fleet');
  await look(`/jobs/${job}`, 'job');

  // Answer with the mouse, on the page of the fleet.
  await part.locator('li').filter({ hasText: 'git push origin main' }).getByRole('button', { name: 'Allow' }).click();
  assert.deepEqual([(await heard(1)).status, (await heard(1)).by.who], ['allowed', 'token']);
  await part.getByText('git push origin main').waitFor({ state: 'detached' });
  assert.equal(await part.locator('li').count(), 3);
  await part.locator('li').filter({ hasText: 'gnp.exe' }).getByRole('button', { name: 'Deny' }).click();
  assert.equal((await heard(2)).status, 'denied');
  await part.locator('li').nth(2).waitFor({ state: 'detached' });

  // Answer with the keyboard alone, on the page of the job.
  await page.goto(`${base}/jobs/${job}`);
  await part.locator('li').nth(3).waitFor();
  const reach = async (name, within) => {
    for (let i = 0; i < 60; i += 1) {
      const [label, row] = await page.evaluate(() => {
        const { activeElement: at } = document;
        return [at.getAttribute('aria-label') ?? at.textContent, at.closest('li')?.textContent ?? ''];
      });
      if (label === name && row.includes(within)) return;
      await page.keyboard.press('Tab');
    }
    throw new Error(`Tab does not lead to ${name}`);
  };
  await reach('Deny', 'config.yaml');
  await page.keyboard.press('Enter');
  assert.equal((await heard(3)).status, 'denied');
  await part.locator('li').filter({ hasText: 'config.yaml' }).locator('.status').getByText('denied').waitFor();
  await reach('Your answer', 'Which of the two?');
  // An update of the page keeps the typed text and the open details.
  const details = part.locator('li').filter({ hasText: 'config.yaml' }).locator('details');
  await details.evaluate((element) => { element.open = true; });
  await page.keyboard.type('The brindled ');
  await say('POST', '/asks', { key: '5', tool: 'Bash', input: { command: 'make' } });
  await part.getByText('make', { exact: true }).waitFor();
  assert.ok(await details.evaluate((element) => element.open), 'it stays open');
  await page.keyboard.type('one <b>.');
  await page.keyboard.press('Enter');
  const answered = await heard(4);
  assert.deepEqual([answered.status, answered.message], ['answered', 'The brindled one <b>.']);
  await part.getByText('The brindled one <b>.').waitFor();
  await reach('Allow', 'make');
  await page.keyboard.press('Enter');
  assert.equal((await heard(5)).status, 'allowed');
  await part.getByRole('button').first().waitFor({ state: 'detached' });
  assert.equal(await part.getByRole('button').count(), 0, 'all is said');

  // The page shows the report of the agent and the refused follow-up.
  const refused = await say('POST', '/followups', { key: 'f', prompt: 'Again.' });
  assert.equal(refused.status, 409);
  await say('POST', '/report', { outcome: 'needs_person', summary: `Somebody has to look. ${script}`, artifacts: ['https://example.com/pull/7', 'asker.token'] });
  await page.locator('#head').getByText('needs a person').waitFor();
  await page.locator('#head').getByText('no follow-up:').waitFor();
  assert.equal(await page.locator('#report a').getAttribute('href'), 'https://example.com/pull/7');
  await look(`/jobs/${job}`, 'told');
  assert.notEqual(await page.title(), 'owned');
  put('asker.end');
  await page.locator('#head').getByText('completed').first().waitFor();
  assert.match(cowhand('job', job), /reported {5}needs a person: Somebody has to look/);
});
