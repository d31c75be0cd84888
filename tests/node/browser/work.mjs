// The page of work: available, claimed and completed items, and a queue that cannot be read beside one that can.
import assert from 'node:assert/strict';
import { base, cowhand, story } from './story.mjs';

await story(async ({ page }) => {
  await page.goto(`${base}/work`);
  await page.getByText('Repair the login').waitFor();
  await page.locator('#trouble').getByText('cannot be read').waitFor();
  assert.match(await page.textContent('#head'), /1 available/);
  cowhand('work', 'claim', 'files-login');
  await page.reload();
  await page.locator('#queue-0').getByText('claimed').waitFor();
  cowhand('work', 'release', 'files-login');
  cowhand('trigger', 'fixer', 'tasks', '--wait');
  await page.goto(`${base}/work`);
  const done = page.locator('#done tbody tr');
  assert.match(await done.first().textContent(), /files-login.*Repair the login.*completed/);
  await done.first().locator('a.id').click();
  await page.locator('#head').getByText('completed').waitFor();
});
