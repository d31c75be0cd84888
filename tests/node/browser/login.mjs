// Login: without a cookie, pages show nothing of the fleet. A link works once. The token in the cookie can be revoked.
import assert from 'node:assert/strict';
import { enter, open } from './browser.mjs';
import { base, cowhand, link } from './story.mjs';

const browser = await open();
const stranger = await (await browser.newContext()).newPage();
for (const path of ['/', '/jobs', '/settings', '/timeline', '/jobs/job-2026-01-01-abc123/live']) {
  const answer = await stranger.goto(base + path);
  assert.equal(answer.status(), 401, path);
  const text = await stranger.textContent('body');
  assert.match(text, /cowhand dashboard/);
  assert.doesNotMatch(text, /anna|quick/, 'nothing about the fleet');
}
assert.equal((await stranger.goto(`${base}/login/wrong`)).status(), 401);

const once = link();
const head = await fetch(once, { method: 'HEAD', redirect: 'manual' });
assert.equal(head.status, 204, 'a request that only checks the link does not use it up');
const page = await enter(browser, once);
assert.equal(page.url(), `${base}/`);
await page.getByRole('heading', { name: 'Fleet', exact: true }).waitFor();
const [cookie, ...more] = await page.context().cookies();
assert.equal(more.length, 0);
assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && cookie.path === '/' && cookie.name.startsWith('cowhand-'), JSON.stringify(cookie));
assert.ok(Math.abs(cookie.expires - Date.now() / 1000 - 30 * 86400) < 120, 'thirty days');
const headers = (await page.reload()).headers();
assert.match(headers['content-security-policy'], /default-src 'none'.*script-src 'self'.*frame-ancestors 'none'.*base-uri 'none'/);
assert.equal(headers['x-content-type-options'], 'nosniff');
assert.equal(headers['referrer-policy'], 'no-referrer');
assert.equal(headers['cache-control'], 'no-store');

// The same link does not work again.
const late = await (await browser.newContext()).newPage();
assert.equal((await late.goto(once)).status(), 401);
assert.match(await late.textContent('body'), /no longer valid/);

// A request that changes something needs the header besides the cookie, and is refused from another origin.
const write = (more) => page.request.post(`${base}/api/v1/schedules/quick/nightly/disable`, { headers: more });
assert.equal((await write({})).status(), 403);
assert.equal((await write({ 'x-cowhand': '1', origin: 'http://evil.example.org' })).status(), 403);
assert.equal((await write({ 'x-cowhand': '1' })).status(), 200);
assert.equal((await write({ 'x-cowhand': '1', cookie: '' })).status(), 401);

// The browser is in the list of tokens, and is logged out when its token is revoked.
const tokens = JSON.parse(cowhand('token', 'list', '--json'));
assert.equal(tokens.length, 1);
assert.match(tokens[0].name, /^browser-[0-9a-f]{4}$/);
assert.equal(tokens[0].scope, 'admin');
cowhand('token', 'revoke', tokens[0].name);
// Use a new tab, because the open page may load itself again at the same time.
const next = await page.context().newPage();
assert.equal((await next.goto(`${base}/jobs`)).status(), 401);
assert.match(await next.textContent('body'), /no longer logged in/);

// The number of wrong login links is limited.
const answers = [];
for (let i = 0; i < 15; i += 1) answers.push((await fetch(`${base}/login/guess-${i}`)).status);
assert.ok(answers.includes(429), answers.join());
await browser.close();
