// Text with markup and control characters is shown as plain text on every page.
import assert from 'node:assert/strict';
import { base, ended, put, story, trigger } from './story.mjs';

await story(async ({ browser, page }) => {
  const script = '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">';
  const nasty = `${script} \u001b[31mred\u001b[0m \u001b]0;title\u0007 \u202Egnp.exe\u202C ${'w'.repeat(3000)}`;
  put('cleo.1', `${nasty}\n${JSON.stringify({ type: 'assistant', content: nasty })}\n${JSON.stringify({ type: 'tool_use', tool_name: nasty, input: { command: nasty } })}\n${JSON.stringify({ type: 'tool_result', result: nasty })}\n${JSON.stringify({ type: 'error', message: nasty })}\n{"type":"result","is_error":true,"result":${JSON.stringify(nasty)}}\n`);
  const job = trigger('cleo', '--prompt', nasty);
  const changed = ended('changer', '--prompt', nasty);
  const mobile = await browser.newContext({ storageState: await page.context().storageState(), viewport: { width: 390, height: 844 } });
  for (const tab of [page, await mobile.newPage()]) {
    const width = tab.viewportSize().width;
    await tab.goto(`${base}/jobs/${job}`);
    await tab.locator('.l-error').waitFor();
    const check = async (where) => {
      const [title, images, wide, text] = await tab.evaluate(() => [document.title, document.querySelectorAll('main img, main script').length, document.documentElement.scrollWidth, document.body.textContent]);
      assert.notEqual(title, 'owned', where);
      assert.equal(images, 0, where);
      assert.ok(wide <= width, `${where} is ${wide} wide of ${width}`);
      assert.doesNotMatch(text, /[\u001b\u202a-\u202e\u2066-\u2069]/, where);
      return text;
    };
    assert.match(await check('job'), /‹U\+202E›gnp\.exe/);
    await tab.goto(`${base}/`);
    await tab.locator('#running li').waitFor();
    assert.match(await check('fleet'), /<script>/);
    if (tab !== page) put('cleo.end');
    for (const path of ['/jobs', '/events', '/timeline', '/agents/quick', `/jobs/${job}?view=raw`, `/jobs/${changed}`, `/schedules/quick/${encodeURIComponent('<script>alert(1)</script>\u202Eevil')}`]) {
      assert.equal((await tab.goto(base + path)).status(), 200, path);
      await check(path);
    }
  }
  await page.goto(`${base}/jobs/${job}`);
  await page.locator('#head').getByText('failed').first().waitFor();
  assert.notEqual(await page.title(), 'owned');
});
