// The small script of the dashboard. The server writes the pages; this keeps them true while they are looked at, makes
// times local, sends what a person decides to the API, and knows the keyboard. All text from elsewhere comes escaped
// from the server and is put into the page by its parser, which runs nothing.
'use strict';
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add('js');

  // ---- Times: local, with the exact one on hover.
  const clock = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  const hours = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hour12: false });
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });
  // The rules of crates/core/src/duration.rs.
  function span(milliseconds) {
    const units = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];
    const seconds = Math.max(0, milliseconds / 1000);
    const smallest = seconds >= 86400 ? 3600 : seconds >= 3600 ? 60 : 1;
    let left = Math.round(seconds / smallest) * smallest;
    const parts = [];
    for (const [name, size] of units) {
      const count = Math.floor(left / size);
      if (count > 0) parts.push(`${count}${name}`);
      left -= count * size;
    }
    return parts.join(' ') || '0s';
  }
  const until = (distance) => (span(distance) === '0s' ? 'now' : `in ${span(distance)}`);
  const since = (distance) => (span(distance) === '0s' ? 'just now' : `${span(distance)} ago`);
  function put(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }
  // Since when the daemon has not answered; until it does again nothing on the page is known to be true, and no clock goes on.
  let away = null;
  function tick(root = document) {
    if (away) return;
    const now = Date.now();
    for (const time of $$('time[data-elapsed]', root)) put(time, span(now - Date.parse(time.dateTime)));
    for (const time of $$('time[data-from-now]', root)) {
      const distance = Date.parse(time.dateTime) - now;
      put(time, distance > 0 ? until(distance) : since(-distance));
    }
    for (const time of $$('time[data-due]', root)) {
      put(time, until(Date.parse(time.dateTime) - now));
    }
  }
  function localise(root = document) {
    for (const time of $$('time[datetime]', root)) {
      const date = new Date(time.dateTime);
      if (Number.isNaN(date.getTime())) continue;
      time.title = `${exact.format(date)} (${time.dateTime})`;
      if (time.hasAttribute('data-at')) put(time, clock.format(date));
    }
    for (const title of $$('title[data-time]', root)) {
      const text = `${title.dataset.before} ${clock.format(new Date(title.dataset.time))}${title.dataset.after}`;
      put(title, text);
      title.closest('a')?.setAttribute('aria-label', text);
    }
    for (const text of $$('text[data-clock]', root)) {
      if (text.textContent.trim() !== 'now') put(text, hours.format(new Date(text.dataset.clock)));
    }
    tick(root);
  }
  localise();
  setInterval(() => { if (!document.hidden) tick(); }, 1000);

  // ---- Saying something to the person, also aloud.
  let silence;
  function say(text) {
    $('#said').textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => { $('#said').textContent = ''; }, 6000);
  }

  // ---- Keeping the page true: the parts marked data-live are asked for again.
  let asking = false;
  let again = false;
  // A click is one only if what the button went down on is still there when it comes up.
  let pressed = false;
  addEventListener('pointerdown', () => { pressed = true; }, true);
  for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => setTimeout(() => { pressed = false; }), true);
  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const response = await fetch(location.href, { headers: { 'x-cowhand': '1' } });
      if (response.status === 401) { location.reload(); return; }
      const text = await response.text();
      if (pressed) again = true;
      else if (response.ok) replace(new DOMParser().parseFromString(text, 'text/html'));
    } catch { /* The connection is gone; the events come back first. */ } finally {
      asking = false;
      if (again) { again = false; soon(); }
    }
  }
  // Soon, but not more often than once a second, however much happens.
  let planned = false;
  let asked = 0;
  function soon() {
    if (planned) return;
    planned = true;
    setTimeout(() => { planned = false; asked = Date.now(); refresh(); }, Math.max(200, asked + 1000 - Date.now()));
  }
  function replace(fresh) {
    localise(fresh);
    document.title = fresh.title;
    for (const old of $$('[data-live]')) {
      const part = fresh.getElementById(old.id);
      if (!part) { old.remove(); continue; }
      if (part.innerHTML === old.innerHTML) continue;
      const focus = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
      const restore = keep(old);
      old.replaceWith(part);
      restore(part);
      if (focus) $$('a, button', part).find((element) => keyOf(element) === focus)?.focus();
    }
    // A part that was not there before stands where the server put it.
    for (const part of $$('[data-live]', fresh)) {
      if (document.getElementById(part.id)) continue;
      let next = part.nextElementSibling;
      while (next && !(next.id && document.getElementById(next.id))) next = next.nextElementSibling;
      if (next) document.getElementById(next.id).before(part);
      else $('#main').append(part);
    }
  }
  // What a person has written or opened there stays, whatever happens elsewhere.
  function keep(old) {
    const fields = $$('form[data-post] input:not([type=hidden])', old).map((field) => ({
      post: field.form.dataset.post, name: field.name, value: field.value,
      at: field === document.activeElement ? [field.selectionStart, field.selectionEnd] : null,
    }));
    const opened = $$('details[data-keep]', old).filter((part) => part.open).map((part) => part.dataset.keep);
    return (part) => {
      for (const { post, name, value, at } of fields) {
        const field = $$('form[data-post] input', part).find((other) => other.name === name && other.form.dataset.post === post);
        if (!field) continue;
        field.value = value;
        if (at) { field.focus(); field.setSelectionRange(...at); }
      }
      for (const details of $$('details[data-keep]', part)) if (opened.includes(details.dataset.keep)) details.open = true;
    };
  }
  const keyOf = (element) => `${element.tagName} ${element.getAttribute('href') ?? element.dataset.post ?? element.textContent} ${element.dataset.answer ?? ''}`;

  // ---- Events. A hidden page has no connection: browsers have six for a server, and people have many tabs.
  const { seq, follow } = document.body.dataset;
  let after = seq;
  let events;
  function concerns(event) {
    // The title counts what agents ask.
    if (!follow || String(event.type).startsWith('ask:')) return true;
    const [key, value] = follow.split(/=(.*)/s);
    return event[key] === value;
  }
  // The daemon does not answer: the page says so, and since when.
  function gone() {
    if (away) return;
    away = new Date();
    document.body.classList.add('away');
    $('#pulse').textContent = `Not connected since ${clock.format(away)}: the daemon does not answer, and what is shown is from then.`;
    $('#pulse').hidden = false;
  }
  function back() {
    if (!away) return;
    away = null;
    document.body.classList.remove('away');
    $('#pulse').hidden = true;
    tick();
    soon();
  }
  function listen() {
    if (seq === undefined || document.hidden || events) return;
    events = new EventSource(`/api/v1/events?follow=1&after=${after}`);
    events.onopen = back;
    events.onmessage = heard;
    events.onerror = () => {
      gone();
      if (events?.readyState === EventSource.CLOSED) { events = undefined; setTimeout(listen, 5000); }
    };
  }
  function heard(message) {
    after = message.lastEventId || after;
    let event;
    try { event = JSON.parse(message.data); } catch { return; }
    if (concerns(event)) soon();
  }
  setInterval(() => { if (!document.hidden && $('[data-poll]')) soon(); }, 3000);

  // ---- Live output: lines come rendered; as many stay in the page as can be scrolled with ease.
  const MOST_LINES = 3000;
  const lines = $('#lines');
  let stream;
  let last = lines?.lastElementChild;
  const heap = [];
  // Whoever is at the end stays there. Lines get their true height only when they are seen, so where the end is cannot be
  // asked while they come: a person who goes up says so.
  const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
  let pinned = atEnd();
  const goUp = () => { pinned = false; };
  addEventListener('wheel', (turn) => { if (turn.deltaY < 0) goUp(); }, { passive: true });
  addEventListener('touchmove', goUp, { passive: true });
  addEventListener('keydown', ({ key }) => { if (['ArrowUp', 'PageUp', 'Home'].includes(key)) goUp(); });
  // On the scroll bar, which is nobody's but the page's.
  addEventListener('mousedown', ({ target }) => { if (target === document.documentElement) goUp(); });
  addEventListener('scroll', () => { if (atEnd()) pinned = true; }, { passive: true });
  function toEnd() {
    if (pinned) window.scrollTo(0, document.documentElement.scrollHeight);
  }
  function hear() {
    if (!lines?.dataset.stream || document.hidden || stream) return;
    const address = new URL(lines.dataset.stream, location.href);
    if (lines.dataset.line) address.searchParams.set('after', lines.dataset.line);
    stream = new EventSource(address);
    stream.onmessage = (message) => {
      const to = Number(message.lastEventId);
      lines.dataset.line = to;
      heap.push({ text: message.data, to });
      // What would be gone from the page before anybody saw it is not even read.
      while (heap.length > 1 && to - heap[0].to >= MOST_LINES) heap.shift();
      if (heap.length === 1) requestAnimationFrame(append);
    };
    stream.addEventListener('end', () => {
      stream.close();
      stream = undefined;
      delete lines.dataset.stream;
      $('#following')?.remove();
      soon();
    });
  }
  // Pieces of a message grow into one line, which goes when anything whole comes.
  const isPiece = (line) => line?.classList.contains('l-partial');
  function grow(fresh, line) {
    const before = fresh.length > 0 ? fresh.at(-1) : lines.lastElementChild;
    if (isPiece(before) && isPiece(line)) {
      $('.c', before).append(...$('.c', line).childNodes);
      return fresh;
    }
    if (isPiece(before)) {
      before.remove();
      if (fresh.length > 0) fresh.pop();
    }
    fresh.push(line);
    return fresh;
  }
  function append() {
    const text = heap.splice(0).map((part) => part.text).join('');
    const fresh = [...new DOMParser().parseFromString(text, 'text/html').body.children].reduce(grow, []).slice(-MOST_LINES);
    const extra = lines.childElementCount + fresh.length - MOST_LINES;
    if (extra >= lines.childElementCount) lines.replaceChildren(...fresh);
    else {
      for (let i = 0; i < extra; i += 1) lines.firstElementChild.remove();
      lines.append(...fresh);
    }
    last = lines.lastElementChild;
    where();
    toEnd();
    requestAnimationFrame(toEnd);
  }
  function where() {
    const [from, to] = [lines.firstElementChild, last].map((line) => Number(line?.id.slice(1) ?? 0));
    put($('#output-where'), from > 1 ? `lines ${from} to ${to} of ${to}` : to === 1 ? '1 line' : `${to} lines`);
  }
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      events?.close(); events = undefined;
      stream?.close(); stream = undefined;
    } else { listen(); hear(); soon(); }
  });
  addEventListener('pageshow', () => { listen(); hear(); });
  addEventListener('pagehide', () => { events?.close(); events = undefined; stream?.close(); stream = undefined; });

  // ---- Doing something: one way to send, with the header that no other page can set.
  async function send(element, body) {
    const button = element.matches('button') ? element : $('button.primary', element);
    button.disabled = true;
    try {
      const response = await fetch(element.dataset.post, {
        method: element.dataset.method ?? 'POST',
        headers: { 'content-type': 'application/json', 'x-cowhand': '1' },
        body: JSON.stringify(body),
      });
      const answer = await response.json().catch(() => ({}));
      if (!response.ok) { say(answer.detail ?? answer.message ?? 'That did not work.'); return; }
      if (element.dataset.then === 'job' && answer.id) { location.href = `/jobs/${encodeURIComponent(answer.id)}`; return; }
      say(element.dataset.said ?? 'Done.');
      soon();
    } catch {
      // What was sent may or may not have arrived.
      gone();
      say('The daemon does not answer. When it is back, this page shows whether that was done.');
    } finally { button.disabled = false; }
  }
  function sure(text) {
    const dialog = $('#confirm');
    $('#confirm-text').textContent = text;
    dialog.returnValue = 'no';
    dialog.showModal();
    $('button.primary', dialog).focus();
    return new Promise((resolve) => dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true }));
  }
  document.addEventListener('click', async (click) => {
    const button = click.target.closest('button');
    if (!button) return;
    if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
    if ('closes' in button.dataset) button.closest('dialog').close();
    if (button.dataset.post && (!button.dataset.confirm || await sure(button.dataset.confirm))) send(button, button.dataset.answer ? { answer: button.dataset.answer } : {});
  });
  document.addEventListener('submit', (submit) => {
    const form = submit.target;
    if (!form.dataset.post) return;
    submit.preventDefault();
    const given = [...new FormData(form)].filter(([, value]) => String(value).trim() !== '');
    form.closest('dialog')?.close();
    send(form, Object.fromEntries(given));
  });
  for (const choice of $$('.filters select')) choice.addEventListener('change', () => choice.form.requestSubmit());

  // ---- The keyboard.
  let prefix = false;
  function step(by) {
    const rows = $$('[data-row]').filter((row) => row.offsetParent);
    if (rows.length === 0) return;
    const here = rows.indexOf(document.activeElement);
    const next = here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + by));
    rows[next].focus();
    rows[next].scrollIntoView({ block: 'nearest' });
  }
  document.addEventListener('keydown', (press) => {
    if (press.ctrlKey || press.metaKey || press.altKey || press.target.closest('input, textarea, select, dialog[open]')) return;
    const { key } = press;
    if (prefix) {
      prefix = false;
      $(`a[data-go="${CSS.escape(key)}"]`)?.click();
    } else if (key === 'g') {
      prefix = true;
      setTimeout(() => { prefix = false; }, 1500);
    } else if (key === '/') {
      if ($('#search')) $('#search').focus();
      else location.href = '/jobs#search';
    } else if (key === 'j' || key === 'k') step(key === 'j' ? 1 : -1);
    else if (key === '?') $('#keys').showModal();
    else if (/^[a-z]$/.test(key) && $(`button[data-key="${key}"]`)) $(`button[data-key="${key}"]`).click();
    else return;
    press.preventDefault();
  });
  if (location.hash === '#search') $('#search')?.focus();
  listen();
  hear();
})();
