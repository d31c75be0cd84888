// The page of a job shows the changes in its workspace and its hook runs without a reload.
import assert from 'node:assert/strict';
import { base, put, story, trigger } from './story.mjs';

await story(async ({ page }) => {
  const job = trigger('changer', '--prompt', 'Be patient.\n<b>bold</b>');
  await page.goto(`${base}/jobs/${job}`);
  const workspace = page.locator('#workspace');
  await workspace.getByText('in use').waitFor();
  await workspace.getByText(`cowhand/changer/${job}`).waitFor();
  assert.equal(await page.locator('#hooks').count(), 0);
  put('changer.go');
  const hooks = page.locator('#hooks tbody tr');
  await hooks.nth(1).getByText('failed').waitFor();
  assert.match(await hooks.nth(0).textContent(), /1\. tell.*after_run, shell.*completed/s);
  assert.match(await hooks.nth(1).textContent(), /nobody listens/);
  await workspace.getByText('kept').waitFor();
  assert.deepEqual(await workspace.locator('.d-ins .d-text').allTextContents(), ['Be patient.', '<b>bold</b>']);
  assert.deepEqual(await workspace.locator('.d-del .d-text').allTextContents(), ['first']);
  assert.equal(await workspace.locator('b').count(), 0);
});
