// The web chat on a phone: Enter begins a new line, the button sends, and hostile text changes nothing.
import assert from 'node:assert/strict';
import { base, cowhand, put, story } from './story.mjs';

await story(async ({ browser, page }) => {
  const storageState = await page.context().storageState();
  const context = await browser.newContext({ storageState, viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, colorScheme: 'dark' });
  const phone = await context.newPage();
  const wrong = [];
  phone.on('pageerror', (error) => wrong.push(error.message));
  phone.on('console', (message) => { if (message.type() === 'error') wrong.push(message.text()); });
  const script = '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">';
  const nasty = `${script} \u001b[31mred \u202Egnp.exe ${'w'.repeat(600)}`;
  const markdown = `${nasty}\n\n[x](javascript:document.title='owned') ![i](https://example.org/i.png) [https://bank.example](https://evil.example)\n\n| ${'a|'.repeat(40)}\n|${'-|'.repeat(41)}\n\n\`\`\`\n${'c'.repeat(500)}\n\`\`\`\n\n<div onclick="document.title='owned'">div</div>`;
  await phone.goto(`${base}/chat/new?agent=cleo`);
  const text = phone.locator('#say');
  await text.tap();
  await phone.keyboard.type('first');
  await phone.keyboard.press('Enter');
  await phone.keyboard.insertText(nasty);
  assert.match(await text.inputValue(), /^first\n<script>/);
  await text.fill(nasty);
  await phone.getByRole('button', { name: 'Send' }).tap();
  await phone.waitForURL((url) => /^\/chat\/[0-9a-f]{32}$/.test(url.pathname));
  put('cleo.1', [
    { type: 'assistant', content: markdown },
    { type: 'tool_use', tool_name: nasty, tool_use_id: '1', input: { command: nasty } },
    { type: 'tool_result', tool_use_id: '1', error: nasty, success: false },
    { type: 'error', message: nasty },
  ].map((line) => `${JSON.stringify(line)}\n`).join(''));
  await phone.locator('#m1 .say-error').waitFor();
  const check = async (where) => {
    await phone.evaluate(() => document.querySelectorAll('details').forEach((part) => { part.open = true; }));
    const [title, active, wide, shown] = await phone.evaluate(() => [document.title, document.querySelectorAll('main img, main script, main [onclick], main a[href^="javascript"]').length, document.documentElement.scrollWidth, document.body.textContent]);
    assert.notEqual(title, 'owned', where);
    assert.equal(active, 0, where);
    assert.ok(wide <= 390, `${where} is ${wide} wide`);
    assert.doesNotMatch(shown, /[\u001b\u202a-\u202e]/, where);
    assert.match(shown, /<script>/, where);
  };
  await check('while it runs');
  assert.match(await phone.locator('#m1 .md').innerText(), /https:\/\/evil\.example/, 'the address of a misleading link');
  await phone.reload();
  await phone.locator('#m1 .say-error').waitFor();
  await check('reloaded');
  put('cleo.end');
  await phone.locator('#m1').getByText('answered').waitFor();
  await check('answered');
  await phone.goto(`${base}/chat`);
  await check('list');
  await phone.goto(`${base}/chat/new?job=${JSON.parse(cowhand('jobs', '--json'))[0].id}`);
  await check('continue');
  assert.deepEqual(wrong, []);
});
