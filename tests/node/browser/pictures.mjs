// Takes the screenshots for README and docs. `scripts/pictures` runs this file.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { enter, open } from './browser.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const images = join(here, '../../../docs/images');
const folder = mkdtempSync(join(tmpdir(), 'pictures-'));
cpSync(join(here, 'pictures'), folder, { recursive: true });
mkdirSync(join(folder, 'tasks'));
mkdirSync(join(folder, 'code/src'), { recursive: true });
writeFileSync(join(folder, 'code/src/tokenizer.rs'), 'fn number(&mut self) -> Token {\n    let text = digits();\n    Token::Number(text)\n}\n');
for (const given of [['init', '-q'], ['add', '-A'], ['commit', '-qm', 'first']]) execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.com', ...given], { cwd: join(folder, 'code') });
for (const [name, title, priority] of [['login', 'Login fails behind a proxy', 'critical'], ['links', 'Old links in the manual', 'low'], ['flaky', 'A test that fails now and then', 'high']]) {
  writeFileSync(join(folder, 'tasks', `${name}.md`), `---\ntitle: ${title}\npriority: ${priority}\n---\nSee the issue.\n`);
}
const run = (...given) => spawnSync(process.env.COWHAND, given, { cwd: folder, encoding: 'utf8' }).stdout.trim();
const daemon = spawn(process.env.COWHAND, ['start'], { cwd: folder, stdio: ['ignore', 'pipe', 'ignore'] });
const base = await new Promise((resolve) => daemon.stdout.once('data', (line) => resolve(String(line).trim().split(' ')[1])));
const browser = await open();
try {
  const job = (agent, ...more) => JSON.parse(run('trigger', agent, '--wait', '--json', ...more)).id;
  const first = job('mender');
  for (let i = 0; i < 3; i += 1) job('mender');
  job('courier', 'report');
  const running = run('trigger', 'builder', 'main').split(' ')[0];
  run('trigger', 'builder', '-p', 'Build the branch tokenizer.');
  run('trigger', 'builder', 'nightly');
  run('work', 'claim', 'files-links');
  const fork = JSON.parse(execFileSync(process.env.COWHAND, ['fork', first, '--prompt', 'Mend the failing test of the parser, and say what was wrong.', '--json'], { cwd: folder, encoding: 'utf8' })).id;
  const page = await enter(browser, run('dashboard'));
  await page.locator('#running li').nth(2).waitFor();
  const storageState = await page.context().storageState();
  const all = {
    fleet: '/', timeline: '/timeline', jobs: '/jobs', job: `/jobs/${first}`, 'job-running': `/jobs/${running}`, diff: `/jobs/${fork}/diff`, 'job-workspace': `/jobs/${first}#hooks`,
    agent: '/agents/builder', schedule: '/schedules/builder/main', work: '/work', usage: '/usage', events: '/events', settings: '/settings',
  };
  const shots = [...Object.entries(all).map(([name, path]) => [name, path, 'light', 1280, 800]),
    ['fleet-dark', '/', 'dark', 1280, 800], ['job-dark', all.job, 'dark', 1280, 800], ['job-workspace-dark', all['job-workspace'], 'dark', 1280, 800],
    ['fleet-phone', '/', 'light', 390, 844], ['job-phone', all.job, 'dark', 390, 844], ['job-workspace-phone', all['job-workspace'], 'light', 390, 844]];
  for (const [name, path, colorScheme, width, height] of shots) {
    const context = await browser.newContext({ storageState, colorScheme, viewport: { width, height }, timezoneId: 'Europe/Berlin', locale: 'en-GB' });
    const tab = await context.newPage();
    await tab.goto(base + path);
    await tab.locator('h1').waitFor();
    // The screenshots do not show the temporary folder of the fleet.
    await tab.evaluate((from) => {
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, '/home/you/fleet');
    }, folder);
    await tab.screenshot({ path: join(images, `${name}.png`), animations: 'disabled' });
    await context.close();
  }
  console.log(`${shots.length} pictures in docs/images`);
} finally {
  await browser.close();
  writeFileSync(join(folder, 'done'), '');
  run('stop');
  rmSync(folder, { recursive: true });
}
