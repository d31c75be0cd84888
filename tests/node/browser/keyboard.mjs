// The dashboard can be used with the keyboard alone.
import assert from 'node:assert/strict';
import { base, cowhand, ended, put, story, trigger } from './story.mjs';

await story(async ({ page }) => {
  const jobs = [ended('quick', '--prompt', 'one'), ended('quick', '--prompt', 'two')];
  await page.goto(`${base}/`);
  const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  for (const [key, path] of [['t', '/timeline'], ['w', '/work'], ['u', '/usage'], ['e', '/events'], ['s', '/settings'], ['f', '/'], ['j', '/jobs']]) {
    await press('g', key);
    await page.waitForURL(base + path);
  }
  const at = () => page.evaluate(() => document.activeElement.getAttribute('href'));
  await page.locator('#jobs [data-row]').first().waitFor();
  await press('j');
  assert.equal(await at(), `/jobs/${jobs[1]}`);
  await press('j');
  assert.equal(await at(), `/jobs/${jobs[0]}`);
  await press('k', 'Enter');
  await page.waitForURL(`${base}/jobs/${jobs[1]}`);
  await press('?');
  await page.locator('#keys[open]').waitFor();
  await press('Escape');
  await page.locator('#keys[open]').waitFor({ state: 'detached' });
  await press('/');
  await page.waitForURL(/\/jobs#search/);
  await page.waitForFunction(() => document.activeElement.id === 'search');
  await page.keyboard.type('one');
  await press('Enter');
  await page.waitForURL(/search=one/);
  // Keys typed into a field are text.
  await page.locator('#search').focus();
  await press('End');
  await page.keyboard.type('gj?');
  assert.equal(await page.locator('#search').inputValue(), 'onegj?');
  // Keys cancel and retry a job, and open the dialog that forks it.
  const job = trigger('anna', '--prompt', 'x');
  await page.goto(`${base}/jobs/${job}`);
  await page.locator('#lines').getByText('anna was told').waitFor();
  await press('x');
  await page.locator('#confirm[open]').waitFor();
  await press('Enter');
  await page.locator('#head').getByText('cancelled', { exact: true }).waitFor();
  put('anna.end');
  await press('r');
  await page.waitForURL((url) => !url.pathname.endsWith(job));
  await page.locator('#head').getByText('completed').waitFor();
  await press('f');
  await page.locator('#fork[open]').waitFor();
  await press('Escape');
  // The first Tab reaches the link that skips the navigation, and the focused element has an outline.
  await page.goto(`${base}/jobs`);
  await press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await press('Enter');
  await press('Tab');
  assert.ok(await page.evaluate(() => document.querySelector('main').contains(document.activeElement)));
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, 'none');
  assert.equal(JSON.parse(cowhand('job', job, '--json')).status, 'cancelled');
});
