// Fills a fleet with jobs, and returns the addresses of all kinds of pages.
import { ended, put, trigger } from './story.mjs';

export function fill() {
  const running = trigger('anna', '--prompt', 'Look through the open pull requests.');
  trigger('bert', '--prompt', 'Find out why the build is slow.');
  put('bert.1', 'The linker takes 41 of 52 seconds.\n');
  const paid = ended('paid');
  ended('breaks');
  ended('quick', 'by-hand');
  const changed = ended('changer');
  const fork = ended('quick', '--prompt', 'one more');
  const updated = ended('dependency-updater', 'weekly-security-review');
  return {
    fleet: '/', timeline: '/timeline', jobs: '/jobs', job: `/jobs/${paid}`, 'job-workspace': `/jobs/${changed}`, 'job-running': `/jobs/${running}`,
    'job-raw': `/jobs/${fork}?view=raw`, agent: '/agents/quick', schedule: '/schedules/quick/nightly', work: '/work', usage: '/usage',
    events: '/events', settings: '/settings', nodes: '/nodes', missing: '/agents/nobody', nowhere: '/nope', wrong: '/jobs?status=bogus',
    'agent-long': '/agents/dependency-updater', 'schedule-long': '/schedules/dependency-updater/weekly-security-review', 'job-long': `/jobs/${updated}`,
    hook: '/schedules/quick/hook', 'jobs-failed': '/jobs?status=failed',
  };
}
