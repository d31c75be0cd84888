// A real browser for the tests of the dashboard: Debian's Chromium, driven by playwright-core.
import { chromium } from 'playwright-core';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

export async function open() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: FLAGS });
}

// Opens a page that is logged in with a login link. `page.wrong` collects the errors of the page and of its console.
export async function enter(browser, link, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, timezoneId: 'Europe/Berlin', locale: 'en-GB', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.wrong = [];
  page.on('pageerror', (error) => page.wrong.push(`error: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error') page.wrong.push(`console: ${message.text()}`); });
  await page.goto(link);
  return page;
}
