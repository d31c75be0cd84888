// Drives the fake of Slack with Slack's own clients. Arguments: the address of the Web API, the bot token, the app token.
// Prints a line `act {…}` for each thing that people in the workspace have to do, and reads its result as a line of JSON.
// Prints `done` at the end. Every mistake is an exception.
import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { SocketModeClient } from "@slack/socket-mode";
import { LogLevel, WebClient } from "@slack/web-api";

const [slackApiUrl, botToken, appToken] = process.argv.slice(2);
const quiet = { slackApiUrl, logLevel: LogLevel.ERROR };
const web = new WebClient(botToken, quiet);
const socket = new SocketModeClient({
  appToken,
  clientOptions: { slackApiUrl },
  logLevel: LogLevel.ERROR,
  // The client waits this long before it connects again.
  clientPingTimeout: 1000,
});

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function act(what, ...args) {
  console.log("act " + JSON.stringify([what, ...args]));
  return JSON.parse((await lines.next()).value);
}

// Received envelopes, and those who wait for one.
const received = [];
let arrived = () => {};
socket.on("slack_event", (event) => {
  received.push(event);
  arrived();
});
async function next(matches) {
  for (;;) {
    const index = received.findIndex(matches);
    if (index >= 0) return received.splice(index, 1)[0];
    await new Promise((resolve) => (arrived = resolve));
  }
}
const isMessage = (text) => ({ body }) => body.event?.type === "message" && body.event.text === text;
const connected = () => new Promise((resolve) => socket.once("connected", resolve));

// Tokens and scopes.
const me = await web.auth.test();
assert.equal(me.bot_id, "BBOT");
assert.ok(me.response_metadata.scopes.includes("chat:write"));
await assert.rejects(new WebClient("xoxb-wrong", quiet).auth.test(), /invalid_auth/);
assert.equal((await web.users.info({ user: "U1" })).user.profile.display_name, "Ada");

// Messages, threads, metadata, edits.
const metadata = { event_type: "test", event_payload: { key: "a&b=ü+ 1" } };
const parent = await web.chat.postMessage({ channel: "C1", text: "one & <two>", metadata });
await web.chat.postMessage({ channel: "C1", thread_ts: parent.ts, text: "reply" });
await web.chat.update({ channel: "C1", ts: parent.ts, text: "changed" });
const history = await web.conversations.history({ channel: "C1", include_all_metadata: true, limit: 1 });
assert.equal(history.messages[0].text, "changed");
assert.deepEqual(history.messages[0].metadata, metadata);
assert.equal((await web.conversations.history({ channel: "C1" })).messages[0].metadata, undefined);
const replies = await web.conversations.replies({ channel: "C1", ts: parent.ts });
assert.deepEqual(replies.messages.map(({ text }) => text), ["changed", "reply"]);
await assert.rejects(web.chat.postMessage({ channel: "C0", text: "x" }), /channel_not_found/);
const section = (text) => ({ type: "section", text: { type: "mrkdwn", text } });
await assert.rejects(web.chat.postMessage({ channel: "C1", text: "x", blocks: [section("x".repeat(3001))] }), /invalid_blocks/);

// Pages.
for (let number = 0; number < 5; number += 1) await web.chat.postMessage({ channel: "C2", text: `${number}` });
const texts = [];
for await (const page of web.paginate("conversations.history", { channel: "C2", limit: 2 })) {
  texts.push(...page.messages.map(({ text }) => text));
}
assert.deepEqual(texts, ["4", "3", "2", "1", "0"]);

// Reactions.
const reaction = { channel: "C1", timestamp: parent.ts, name: "eyes" };
await web.reactions.add(reaction);
await assert.rejects(web.reactions.add(reaction), /already_reacted/);
assert.deepEqual(await act("reactions", "C1", parent.ts), ["eyes"]);
await web.reactions.remove(reaction);
await assert.rejects(web.reactions.remove(reaction), /no_reaction/);

// Files.
const content = Buffer.from([0, 1, 2, 13, 10, 45, 45, 255]);
await web.filesUploadV2({ channel_id: "C1", thread_ts: parent.ts, filename: "a.bin", file: content, initial_comment: "look" });
assert.deepEqual(await act("files", "C1"), [["a.bin", [...content]]]);
const shared = (await web.conversations.replies({ channel: "C1", ts: parent.ts })).messages.at(-1);
assert.equal(shared.text, "look");
const file = (await web.files.info({ file: shared.files[0].id })).file;
assert.ok(file.shares.public.C1);
const open = (headers) => fetch(file.url_private, { headers });
assert.deepEqual(Buffer.from(await (await open({ authorization: `Bearer ${botToken}` })).arrayBuffer()), content);
assert.match(await (await open({})).text(), /Sign in/);

// The client waits as long as the rate limit lasts.
await act("rate_limit", "chat.postMessage", 1);
await web.chat.postMessage({ channel: "C1", text: "after the rate limit" });

// Events: each has to be acknowledged.
await socket.start();
const said = await act("say", "C1", "U1", "hello <@UBOT>");
for (const type of ["message", "app_mention"]) {
  const { ack, body } = await next(({ body }) => body.event?.type === type);
  assert.equal(body.event.ts, said);
  assert.equal(body.event.user, "U1");
  assert.equal(body.team_id, me.team_id);
  await ack();
}
const direct = await act("say_direct", "U1", "privately");
const message = await next(isMessage("privately"));
assert.deepEqual([message.body.event.channel_type, message.body.event.ts], ["im", direct]);
await message.ack();
await act("edit", "C1", said, "edited");
const edit = await next(({ body }) => body.event?.subtype === "message_changed");
assert.equal(edit.body.event.message.text, "edited");
await edit.ack();
await act("delete", "C1", said);
const deletion = await next(({ body }) => body.event?.subtype === "message_deleted");
assert.equal(deletion.body.event.deleted_ts, said);
await deletion.ack();
await act("acknowledged");

// What is not acknowledged comes again.
await act("impatient");
await act("say", "C1", "U1", "again");
const first = await next(isMessage("again"));
const second = await next(isMessage("again"));
assert.deepEqual([first.retry_num, second.retry_num > 0, second.envelope_id], [0, true, first.envelope_id]);
assert.equal(second.body.event_id, first.body.event_id);
await second.ack();
await act("patient");

// Commands and buttons.
await act("slash", "U1", "C1", "/cowhand", "status");
const command = await next(({ type }) => type === "slash_commands");
assert.deepEqual([command.body.command, command.body.text], ["/cowhand", "status"]);
await command.ack({ text: "fine", response_type: "ephemeral" });
assert.equal(await act("slash_answer"), "fine");
const element = { type: "button", action_id: "a", text: { type: "plain_text", text: "Yes" }, value: "v1" };
const blocks = [section("Sure?"), { type: "actions", elements: [element] }];
const ask = await web.chat.postMessage({ channel: "C1", text: "Sure?", blocks });
const trigger = await act("press", "U1", "C1", ask.ts, "v1");
const press = await next(({ type }) => type === "interactive");
assert.deepEqual([press.body.type, press.body.actions[0].value], ["block_actions", "v1"]);
assert.deepEqual([press.body.container.message_ts, press.body.user.id], [ask.ts, "U1"]);
await press.ack();
await fetch(press.body.response_url, { method: "POST", body: JSON.stringify({ text: "noted" }) });
assert.equal(await act("press_answer", trigger), "noted");

// Announced ends, and lost connections.
for (const end of ["disconnect", "drop_connections"]) {
  const again = connected();
  await act(end, "warning");
  await again;
  await act("say", "C1", "U1", `after ${end}`);
  await (await next(isMessage(`after ${end}`))).ack();
}
await socket.disconnect();
console.log("done");
process.exit(0);
