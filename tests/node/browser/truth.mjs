// The pages show correct facts: budgets, refused configs, time zones, durations, wrong addresses.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { FLEET, base, ended, story } from './story.mjs';

await story(async ({ page }) => {
  ended('dependency-updater');
  await page.goto(`${base}/usage`);
  const bar = page.locator('#budgets tr', { hasText: 'dependency-updater' }).locator('svg.share');
  const [ground, value] = await bar.evaluate((svg) => ['.ground', '.value'].map((part) => {
    const rect = svg.querySelector(part);
    return { fill: getComputedStyle(rect).fill, width: rect.getBoundingClientRect().width };
  }));
  assert.notEqual(ground.fill, 'rgb(0, 0, 0)', 'the ground of a bar is not black');
  assert.notEqual(ground.fill, value.fill, 'what was spent is told from the rest');
  assert.ok(Math.abs(value.width / ground.width - 0.25) < 0.01, `a quarter is spent: ${value.width} of ${ground.width}`);

  // The open page shows that a config is refused, and that a later config is accepted.
  await page.goto(`${base}/`);
  const file = join(FLEET, 'cowhand.yaml');
  const good = readFileSync(file, 'utf8');
  const refused = page.getByText('The config on disk was refused');
  assert.equal(await refused.count(), 0);
  writeFileSync(file, `${good}\nnonsense: true\n`);
  await refused.waitFor();
  writeFileSync(file, good);
  await refused.waitFor({ state: 'detached' });

  // The axis of the timeline and its tooltips are in the zone of the browser.
  await page.goto(`${base}/timeline`);
  const marks = await page.locator('title[data-time]').evaluateAll((all) => all.map((title) => [title.dataset.time, title.textContent]));
  assert.ok(marks.length > 0);
  const clock = new Intl.DateTimeFormat('en-GB', { timeZone: 'Europe/Berlin', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  for (const [time, text] of marks) {
    assert.ok(text.includes(clock.format(new Date(time))) && !text.includes('UTC'), `${time}: ${text}`);
  }
  const axis = await page.locator('text[data-clock]').evaluateAll((all) => all.map((text) => [text.dataset.clock, text.textContent.trim()]));
  const hours = new Intl.DateTimeFormat('en-GB', { timeZone: 'Europe/Berlin', hour: '2-digit', minute: '2-digit', hour12: false });
  for (const [time, text] of axis) assert.ok(text === 'now' || text === hours.format(new Date(time)), `${time}: ${text}`);

  // The script formats durations as the server does.
  const cases = JSON.parse(readFileSync(new URL('../../durations.json', import.meta.url), 'utf8'));
  await page.evaluate((lengths) => {
    const now = Date.now();
    Date.now = () => now;
    for (const length of lengths) {
      const time = document.createElement('time');
      time.className = 'case';
      time.dateTime = new Date(now - length).toISOString();
      time.setAttribute('data-elapsed', '');
      document.body.append(time);
    }
  }, cases.map(([length]) => length));
  await page.locator('time.case', { hasText: '1d 1h' }).waitFor();
  assert.deepEqual(await page.locator('time.case').allTextContents(), cases.map(([, words]) => words));

  // A wrong address shows a page with a link to the fleet.
  for (const path of ['/nope', '/jobs?status=bogus', '/jobs?colour=red', '/jobs/nothing']) {
    await page.goto(base + path);
    await page.getByRole('link', { name: 'Back to the fleet' }).waitFor();
  }
});
