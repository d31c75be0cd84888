// The daemon stops and starts again: the page shows that it is not connected, and then adds the missed lines.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { base, COWHAND, cowhand, FLEET, put, story, trigger } from './story.mjs';

await story(async ({ page }) => {
  const job = trigger('anna', '--prompt', 'live long');
  await page.goto(`${base}/jobs/${job}`);
  await page.locator('#lines').getByText('anna was told').waitFor();
  cowhand('stop', '--keep-agents');
  await page.locator('#pulse').getByText('Not connected since').waitFor();
  put('anna.1', 'said while nobody listened\n');
  const again = spawn(COWHAND, ['start', '--listen', new URL(base).host], { cwd: FLEET, stdio: 'ignore' });
  try {
    await page.locator('#lines').getByText('said while nobody listened').waitFor({ timeout: 40_000 });
    const said = await page.locator('#lines .l').evaluateAll((all) => all.map((line) => line.id));
    assert.deepEqual(said, ['L1', 'L2'], 'each line once');
    await page.locator('#pulse').waitFor({ state: 'hidden', timeout: 40_000 });
    put('anna.end');
    await page.locator('#head').getByText('completed').waitFor({ timeout: 40_000 });
  } finally {
    execFileSync(COWHAND, ['stop'], { cwd: FLEET });
    await new Promise((resolve) => { if (again.exitCode === null) again.once('exit', resolve); else resolve(); });
  }
});
