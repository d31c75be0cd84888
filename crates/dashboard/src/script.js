// The script of the dashboard. The server renders the pages. This script updates them, shows times in the local time
// zone, sends the actions of a person to the API, and handles keyboard shortcuts. External text arrives escaped from
// the server and is inserted by a parser that runs no scripts.
'use strict';
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add('js');

  // ---- Times: in the local time zone, with the exact time on hover.
  const clock = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  const hours = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hour12: false });
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });
  // Formats a duration by the rules of crates/core/src/duration.rs.
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
  // Time since which the daemon has not answered. Until it answers again, the page may be outdated, so its clocks stop.
  let disconnectedSince = null;
  function tick(root = document) {
    if (disconnectedSince) return;
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

  // ---- Messages to the person, which screen readers read aloud.
  let hideTimer;
  function say(text) {
    $('#said').textContent = text;
    clearTimeout(hideTimer);
    hideTimer = setTimeout(() => { $('#said').textContent = ''; }, 6000);
  }

  // ---- Updating the page: the parts marked data-live are loaded again.
  let isRefreshing = false;
  let refreshAgain = false;
  // The browser reports a click only if the element under the pointer is the same at press and release. So no part is
  // replaced between press and release.
  let isPressed = false;
  addEventListener('pointerdown', () => { isPressed = true; }, true);
  for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => setTimeout(() => { isPressed = false; }), true);
  async function refresh() {
    if (isRefreshing) { refreshAgain = true; return; }
    isRefreshing = true;
    try {
      const response = await fetch(location.href, { headers: { 'x-cowhand': '1' } });
      if (response.status === 401) { location.reload(); return; }
      const text = await response.text();
      if (isPressed) refreshAgain = true;
      else if (response.ok) replace(new DOMParser().parseFromString(text, 'text/html'));
    } catch { /* The connection is lost; the page is refreshed when the events are connected again. */ } finally {
      isRefreshing = false;
      if (refreshAgain) { refreshAgain = false; refreshSoon(); }
    }
  }
  // Refreshes after a short pause, at most once a second.
  let isScheduled = false;
  let lastRefresh = 0;
  function refreshSoon() {
    if (isScheduled) return;
    isScheduled = true;
    setTimeout(() => { isScheduled = false; lastRefresh = Date.now(); refresh(); }, Math.max(200, lastRefresh + 1000 - Date.now()));
  }
  function replace(fresh) {
    localise(fresh);
    document.title = fresh.title;
    for (const old of $$('[data-live]')) {
      const part = fresh.getElementById(old.id);
      if (!part) { old.remove(); continue; }
      if (part.innerHTML === old.innerHTML) continue;
      // An answer that is still streamed keeps its lines; only its other parts are replaced.
      if (stream && old.dataset.streams && old.dataset.streams === part.dataset.streams) {
        for (const inner of $$('[data-part]', old)) {
          const now = $(`#${CSS.escape(inner.id)}`, part);
          if (now && now.innerHTML !== inner.innerHTML) replacePart(inner, now);
        }
        continue;
      }
      replacePart(old, part);
    }
    insertNew(fresh);
    attachLines();
    toEnd();
  }
  // Replaces a part of the page. Keeps the text of form fields, the open details and the focus.
  function replacePart(old, part) {
    const focus = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
    const restore = saveInput(old);
    old.replaceWith(part);
    restore(part);
    if (focus) $$('a, button, summary', part).find((element) => keyOf(element) === focus)?.focus();
  }
  // Inserts new parts at the positions where the server has them.
  function insertNew(fresh) {
    for (const part of $$('[data-live]', fresh)) {
      if (document.getElementById(part.id)) continue;
      const parent = document.getElementById(part.parentElement.id) ?? $('#main');
      let next = part.nextElementSibling;
      while (next && !(next.id && document.getElementById(next.id))) next = next.nextElementSibling;
      if (next) document.getElementById(next.id).before(part);
      else parent.append(part);
    }
  }
  // Saves the text of form fields and the open details, and returns a function that restores both in the new part.
  function saveInput(old) {
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
  const keyOf = (element) => `${element.tagName} ${element.getAttribute('href') ?? element.dataset.post ?? element.textContent} ${element.dataset.answer ?? ''} ${element.dataset.message ?? ''}`;

  // ---- Events. A hidden page closes its connection, because a browser opens at most six connections to a server and
  // there may be many tabs.
  const { seq, follow } = document.body.dataset;
  let after = seq;
  let events;
  function concerns(event) {
    // The title shows the number of open asks.
    if (!follow || String(event.type).startsWith('ask:')) return true;
    const [key, value] = follow.split(/=(.*)/s);
    return event[key] === value;
  }
  // Shows that the daemon does not answer, and since when.
  function showDisconnected() {
    if (disconnectedSince) return;
    disconnectedSince = new Date();
    document.body.classList.add('away');
    $('#pulse').textContent = `Not connected since ${clock.format(disconnectedSince)}: the daemon does not answer; the page shows the state of that time.`;
    $('#pulse').hidden = false;
  }
  function showConnected() {
    if (!disconnectedSince) return;
    disconnectedSince = null;
    document.body.classList.remove('away');
    $('#pulse').hidden = true;
    tick();
    refreshSoon();
  }
  function listen() {
    if (seq === undefined || document.hidden || events) return;
    events = new EventSource(`/api/v1/events?follow=1&after=${after}`);
    events.onopen = showConnected;
    events.onmessage = onEvent;
    events.onerror = () => {
      showDisconnected();
      if (events?.readyState === EventSource.CLOSED) { events = undefined; setTimeout(listen, 5000); }
    };
  }
  function onEvent(message) {
    after = message.lastEventId || after;
    let event;
    try { event = JSON.parse(message.data); } catch { return; }
    if (concerns(event)) refreshSoon();
  }
  setInterval(() => { if (!document.hidden && $('[data-poll]')) refreshSoon(); }, 3000);

  // ---- Live output: lines arrive rendered. Only the last lines are kept in the page, so that scrolling remains fast.
  const MAX_LINES = 3000;
  let lines = $('#lines');
  let stream;
  let last = lines?.lastElementChild;
  const pendingParts = [];
  // A page that is scrolled to its end remains at the end when lines are added. Lines get their real height only when
  // they are visible, so the end cannot be computed while lines arrive. Therefore the page is unpinned only when a
  // person scrolls up.
  const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
  let pinned = atEnd();
  const unpin = () => { pinned = false; };
  addEventListener('wheel', (turn) => { if (turn.deltaY < 0) unpin(); }, { passive: true });
  addEventListener('touchmove', unpin, { passive: true });
  addEventListener('keydown', ({ key }) => { if (['ArrowUp', 'PageUp', 'Home'].includes(key)) unpin(); });
  // A press on the scroll bar has the document as its target.
  addEventListener('mousedown', ({ target }) => { if (target === document.documentElement) unpin(); });
  addEventListener('scroll', () => { if (atEnd()) pinned = true; }, { passive: true });
  function toEnd() {
    if (pinned) window.scrollTo(0, document.documentElement.scrollHeight);
  }
  // After the part with the output was replaced, the new part is followed.
  function attachLines() {
    const fresh = $('#lines');
    if (fresh === lines) return;
    stream?.close();
    stream = undefined;
    pendingParts.length = 0;
    lines = fresh;
    last = lines?.lastElementChild;
    followOutput();
  }
  function followOutput() {
    if (!lines?.dataset.stream || document.hidden || stream) return;
    const address = new URL(lines.dataset.stream, location.href);
    if (lines.dataset.line) address.searchParams.set('after', lines.dataset.line);
    stream = new EventSource(address);
    stream.onmessage = (message) => {
      const to = Number(message.lastEventId);
      lines.dataset.line = to;
      pendingParts.push({ text: message.data, to });
      // Lines that would be removed before anybody sees them are not parsed.
      while (pendingParts.length > 1 && to - pendingParts[0].to >= MAX_LINES) pendingParts.shift();
      if (pendingParts.length === 1) requestAnimationFrame(append);
    };
    stream.addEventListener('end', () => {
      stream.close();
      stream = undefined;
      delete lines.dataset.stream;
      $('#following')?.remove();
      refreshSoon();
    });
  }
  // Pieces of a message are merged into one line, which is removed when the next complete line arrives.
  const isPiece = (line) => line?.classList.contains('l-partial');
  function mergePiece(fresh, line) {
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
    const text = pendingParts.splice(0).map((part) => part.text).join('');
    if (!lines) return;
    const fresh = [...new DOMParser().parseFromString(text, 'text/html').body.children].reduce(mergePiece, []).slice(-MAX_LINES);
    const extra = lines.childElementCount + fresh.length - MAX_LINES;
    if (extra >= lines.childElementCount) lines.replaceChildren(...fresh);
    else {
      for (let i = 0; i < extra; i += 1) lines.firstElementChild.remove();
      lines.append(...fresh);
    }
    last = lines.lastElementChild;
    showPosition();
    toEnd();
    requestAnimationFrame(toEnd);
  }
  function showPosition() {
    if (!$('#output-where')) return;
    const [from, to] = [lines.firstElementChild, last].map((line) => Number(line?.id.slice(1) ?? 0));
    put($('#output-where'), from > 1 ? `lines ${from} to ${to} of ${to}` : to === 1 ? '1 line' : `${to} lines`);
  }
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      events?.close(); events = undefined;
      stream?.close(); stream = undefined;
    } else { listen(); followOutput(); refreshSoon(); }
  });
  addEventListener('pageshow', () => { listen(); followOutput(); });
  addEventListener('pagehide', () => { events?.close(); events = undefined; stream?.close(); stream = undefined; });

  // ---- Actions: one function sends all of them, with the header that a page of another site cannot set.
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
      if (!response.ok) { say(answer.detail ?? answer.message ?? 'The request failed.'); return; }
      if (element.dataset.then === 'job' && answer.id) { location.href = `/jobs/${encodeURIComponent(answer.id)}`; return; }
      if (element.matches('form[data-resets]')) element.reset();
      say(element.dataset.said ?? 'Done.');
      refreshSoon();
    } catch {
      // The request may or may not have arrived.
      showDisconnected();
      say('The daemon does not answer. When it answers again, this page shows whether the request was carried out.');
    } finally { button.disabled = false; }
  }
  function confirmAction(text) {
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
    if (button.dataset.steer) sendMessage(button.dataset.steer, { interrupt: 'interrupt' in button.dataset });
    if ('again' in button.dataset) sendAgain(button);
    if ('closes' in button.dataset) button.closest('dialog').close();
    if (button.dataset.post && (!button.dataset.confirm || await confirmAction(button.dataset.confirm))) send(button, button.dataset.answer ? { answer: button.dataset.answer, message: button.dataset.message } : {});
  });
  document.addEventListener('submit', (submit) => {
    const form = submit.target;
    if (!form.dataset.post) return;
    submit.preventDefault();
    const fields = [...new FormData(form)].filter(([, value]) => String(value).trim() !== '');
    form.closest('dialog')?.close();
    const value = ([name, text]) => [name, form.elements[name].type === 'checkbox' ? true : text];
    send(form, Object.fromEntries(fields.map(value)));
  });

  // ---- The form for a message. A message is shown only when the server has stored it; until then, its text stays in the
  // form. The key of a message makes a repeated request send it once.
  const composer = $('#composer');
  const draftName = `draft ${location.pathname}${location.search}`;
  let key;
  let isSending = false;
  const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  function keepDraft() {
    const { value } = $('textarea', composer);
    try {
      if (value) sessionStorage.setItem(draftName, JSON.stringify({ value, key }));
      else sessionStorage.removeItem(draftName);
    } catch { /* Without storage, the text is only in the form. */ }
  }
  function restoreDraft() {
    try {
      const draft = JSON.parse(sessionStorage.getItem(draftName));
      if (draft) { $('textarea', composer).value = draft.value; key = draft.key; }
    } catch { /* There is no draft. */ }
  }
  function sendAgain(button) {
    const text = $('textarea', composer);
    text.value = $('.bubble', button.closest('.exchange')).textContent;
    key = undefined;
    keepDraft();
    text.focus();
  }
  async function sendMessage(address, more) {
    const text = $('textarea', composer);
    if (isSending || !text.value.trim()) return;
    isSending = true;
    key ??= newKey();
    keepDraft();
    const buttons = $$('button', composer);
    for (const button of buttons) button.disabled = true;
    $('#unsent').textContent = '';
    try {
      const response = await fetch(address, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-cowhand': '1' },
        body: JSON.stringify({ ...more, text: text.value, key }),
      });
      const answer = await response.json().catch(() => ({}));
      if (!response.ok) {
        // The server has decided, so the next try is another request.
        if (response.status < 500) key = undefined;
        $('#unsent').textContent = `Not sent: ${answer.detail ?? 'the request failed.'}`;
        keepDraft();
        return;
      }
      text.value = '';
      key = undefined;
      keepDraft();
      if (composer.dataset.next === 'conversation') { location.href = `/chat/${encodeURIComponent(answer.conversation.id)}`; return; }
      pinned = true;
      if (answer.route) say(answer.route === 'live' ? 'The agent gets the message while it works.' : 'The agent gets the message next.');
      await refresh();
    } catch {
      // The request may have arrived. The same key makes another try safe.
      showDisconnected();
      $('#unsent').textContent = 'The daemon did not answer. Your text is kept: send it again; it is sent only once.';
    } finally {
      isSending = false;
      for (const button of buttons) button.disabled = false;
    }
  }
  if (composer) {
    const text = $('textarea', composer);
    restoreDraft();
    text.addEventListener('input', () => { key = undefined; keepDraft(); });
    // A touch keyboard has no Shift and Enter, so Enter begins a new line there.
    const hasKeyboard = matchMedia('(hover: hover) and (pointer: fine)');
    text.addEventListener('keydown', (press) => {
      if (press.key !== 'Enter' || press.shiftKey || press.isComposing || !hasKeyboard.matches) return;
      press.preventDefault();
      composer.requestSubmit();
    });
    composer.addEventListener('submit', (submit) => {
      submit.preventDefault();
      const { text: ignored, ...more } = Object.fromEntries(new FormData(composer));
      sendMessage(composer.dataset.chat, more);
    });
    if (hasKeyboard.matches) text.focus({ preventScroll: true });
    pinned = true;
    toEnd();
    requestAnimationFrame(toEnd);
  }
  for (const choice of $$('.filters select')) choice.addEventListener('change', () => choice.form.requestSubmit());

  // ---- The keyboard.
  let prefix = false;
  function step(by) {
    const rows = $$('[data-row]').filter((row) => row.offsetParent);
    if (rows.length === 0) return;
    const current = rows.indexOf(document.activeElement);
    const next = current < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, current + by));
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
  followOutput();
})();
