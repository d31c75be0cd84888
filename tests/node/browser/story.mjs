// The parts that all browser tests share: the commands of the fleet, and a page that is logged in.
import { execFileSync, spawnSync } from 'node:child_process';
import { renameSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { enter, open } from './browser.mjs';

export const { COWHAND, FLEET, URL: base } = process.env;

export function cowhand(...given) {
  return execFileSync(COWHAND, given, { cwd: FLEET, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
}

// Writes a file that controls a scripted agent. The rename makes the complete file appear at once.
export function put(name, text = '') {
  writeFileSync(join(FLEET, `${name}.new`), text);
  renameSync(join(FLEET, `${name}.new`), join(FLEET, name));
}

export const link = () => cowhand('dashboard');

// Creates a job and returns its id.
export function trigger(agent, ...given) {
  return cowhand('trigger', agent, ...given).split(' ')[0];
}

// Creates a job, waits until it has completed or failed, and returns its id.
export function ended(agent, ...given) {
  const { stdout } = spawnSync(COWHAND, ['trigger', agent, '--wait', '--json', ...given], { cwd: FLEET, encoding: 'utf8' });
  return JSON.parse(stdout).id;
}

// Sends a request to the API over the owner's socket.
export function api(method, path, body) {
  return new Promise((resolve, reject) => {
    const options = { socketPath: join(FLEET, '.cowhand/sock'), method, path: `/api/v1/${path}`, headers: { 'content-type': 'application/json' } };
    const asked = request(options, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part) => { text += part; }).on('end', () => {
        if (answer.statusCode >= 400) reject(new Error(`${method} ${path}: ${answer.statusCode} ${text}`));
        else resolve(JSON.parse(text));
      });
    });
    asked.on('error', reject).end(body === undefined ? '' : JSON.stringify(body));
  });
}

export async function story(tell) {
  const browser = await open();
  try {
    const page = await enter(browser, link());
    await tell({ browser, page });
    // Messages about a closed connection are not errors of the page.
    const wrong = page.wrong.filter((line) => !/net::ERR_|Failed to load resource/.test(line));
    if (wrong.length > 0) throw new Error(`the page says: ${wrong.join('; ')}`);
  } finally {
    await browser.close();
  }
}
