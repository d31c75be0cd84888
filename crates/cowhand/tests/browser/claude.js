#!/usr/bin/env node
// Claude Code as a test controls it: it repeats each message, says what it heard, and ends after a message with the word "end".
const lines = require('node:readline').createInterface({ input: process.stdin });
const session_id = process.env.COWHAND_JOB_ID;
const print = (line) => process.stdout.write(`${JSON.stringify({ ...line, session_id })}\n`);
const say = (text) => print({ type: 'assistant', message: { role: 'assistant', content: [{ type: 'text', text }] } });
print({ type: 'system', subtype: 'init' });
lines.on('line', (line) => {
  const given = JSON.parse(line);
  if (given.type === 'control_request') {
    print({ type: 'control_response', response: { subtype: 'success', request_id: given.request_id } });
    say('It was interrupted.');
    print({ type: 'result', subtype: 'error_during_execution', is_error: true, num_turns: 1 });
  }
  if (given.type !== 'user') return;
  print({ ...given, isReplay: true });
  const { content } = given.message;
  const text = typeof content === 'string' ? content : content.map((part) => part.text).join('');
  say(`I heard: ${text}`);
  if (text.includes('end')) print({ type: 'result', subtype: 'success', is_error: false, result: `I heard: ${text}`, num_turns: 1 });
});
lines.on('close', () => process.exit(0));
