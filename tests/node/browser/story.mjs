// What every story needs: the fleet it is about, a browser that is let in, and a way to say what went wrong.
import { execFileSync, spawnSync } from 'node:child_process';
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { enter, open } from './browser.mjs';

export const { COWHAND, FLEET, URL: base } = process.env;

export function cowhand(...given) {
  return execFileSync(COWHAND, given, { cwd: FLEET, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
}

// A file by which a story leads an agent. It appears whole.
export function put(name, text = '') {
  writeFileSync(join(FLEET, `${name}.new`), text);
  renameSync(join(FLEET, `${name}.new`), join(FLEET, name));
}

export const link = () => cowhand('dashboard');

// Makes a job and says which.
export function trigger(agent, ...given) {
  return cowhand('trigger', agent, ...given).split(' ')[0];
}

// Makes one, and says which when it has ended, well or not.
export function ended(agent, ...given) {
  const { stdout } = spawnSync(COWHAND, ['trigger', agent, '--wait', '--json', ...given], { cwd: FLEET, encoding: 'utf8' });
  return JSON.parse(stdout).id;
}

export async function story(tell) {
  const browser = await open();
  try {
    const page = await enter(browser, link());
    await tell({ browser, page });
    // What a closed connection leaves in the console is no fault of the page.
    const wrong = page.wrong.filter((line) => !/net::ERR_|Failed to load resource/.test(line));
    if (wrong.length > 0) throw new Error(`the page says: ${wrong.join('; ')}`);
  } finally {
    await browser.close();
  }
}
