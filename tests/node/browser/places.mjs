// Fills a fleet with jobs, and returns the addresses of all kinds of pages.
import { api, ended, put, trigger } from './story.mjs';

export async function fill() {
  const running = trigger('anna', '--prompt', 'Look through the open pull requests.');
  trigger('bert', '--prompt', 'Find out why the build is slow.');
  put('bert.1', 'The linker takes 41 of 52 seconds.\n');
  const paid = ended('paid');
  ended('breaks');
  ended('quick', 'by-hand');
  const changed = ended('changer');
  const fork = ended('quick', '--prompt', 'one more');
  const updated = ended('dependency-updater', 'weekly-security-review');
  const talk = (agent, text) => api('POST', 'conversations', { agent, text });
  const { conversation } = await talk('paid', 'Is the *build* green?\nLook at `src` too.');
  await api('POST', `conversations/${conversation.id}/messages`, { text: 'And the tests?' });
  await api('POST', `conversations/${conversation.id}/reset`);
  const waits = await talk('anna', 'What are you doing?');
  return {
    chat: '/chat', 'chat-new': '/chat/new', 'chat-begin': '/chat/new?agent=anna', 'chat-continue': `/chat/new?job=${paid}`,
    conversation: `/chat/${conversation.id}`, 'conversation-waits': `/chat/${waits.conversation.id}`,
    fleet: '/', timeline: '/timeline', jobs: '/jobs', job: `/jobs/${paid}`, 'job-workspace': `/jobs/${changed}`, 'job-running': `/jobs/${running}`,
    'job-raw': `/jobs/${fork}?view=raw`, agent: '/agents/quick', schedule: '/schedules/quick/nightly', work: '/work', usage: '/usage',
    events: '/events', notifications: '/notifications', settings: '/settings', nodes: '/nodes', missing: '/agents/nobody',
    nowhere: '/nope', wrong: '/jobs?status=bogus',
    'agent-long': '/agents/dependency-updater', 'schedule-long': '/schedules/dependency-updater/weekly-security-review', 'job-long': `/jobs/${updated}`,
    hook: '/schedules/quick/hook', 'jobs-failed': '/jobs?status=failed',
  };
}
