// Computes the next times of cron expressions with two cron libraries.
//
// stdin:  [{"cron": "0 9 * * *", "zone": "Europe/Berlin", "from": "2026-01-01T00:00:00Z", "count": 5}, …]
// stdout: [{"cron_parser": ["2026-01-01T08:00:00Z", …], "croner": "an error message"}, …], in the same order

import { readFileSync } from "node:fs";
import { CronExpressionParser } from "cron-parser";
import { Cron } from "croner";

function cronParser({ cron, zone, from, count }) {
  const expression = CronExpressionParser.parse(cron, { currentDate: new Date(from), tz: zone });
  return Array.from({ length: count }, () => expression.next().toDate());
}

function croner({ cron, zone, from, count }) {
  return new Cron(cron, { timezone: zone, paused: true }).nextRuns(count, new Date(from));
}

function answer(oracle, question) {
  try {
    return oracle(question).map((date) => date.toISOString().replace(".000Z", "Z"));
  } catch (error) {
    return String(error.message);
  }
}

const questions = JSON.parse(readFileSync(0, "utf8"));
const answers = questions.map((question) => ({
  cron_parser: answer(cronParser, question),
  croner: answer(croner, question),
}));
process.stdout.write(JSON.stringify(answers));
