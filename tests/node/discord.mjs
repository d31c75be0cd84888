// Uses the fake Discord of crates/testing with discord.js, the most used client.
//
//   node discord.mjs URL TOKEN GUILD CHANNEL USER SECOND_TOKEN
//
// The tokens are those of two bots in the same channel.
//
// What people do is requested from the test that has started the fake: a line of JSON with an id on standard output, and
// a line with the same id and the result on standard input.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import {
  ActionRowBuilder,
  ActivityType,
  ButtonBuilder,
  ButtonStyle,
  Client,
  Events,
  GatewayIntentBits,
  MessageFlags,
  Partials,
  SlashCommandBuilder,
} from 'discord.js'

const [url, token, guildId, channelId, userId, secondToken] = process.argv.slice(2)

const answers = new Map()
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, result } = JSON.parse(line)
  answers.get(id)(result)
})
let lastId = 0
/** Requests an action of people, and returns its result. */
function act(action, fields = {}) {
  lastId += 1
  console.log(JSON.stringify({ id: lastId, action, ...fields }))
  return new Promise((resolve) => answers.set(lastId, resolve))
}

const intents = [
  GatewayIntentBits.Guilds,
  GatewayIntentBits.GuildMessages,
  GatewayIntentBits.DirectMessages,
  GatewayIntentBits.MessageContent,
]
const presence = { activities: [{ name: 'the herd', type: ActivityType.Watching }] }
const client = new Client({ intents, presence, partials: [Partials.Channel], rest: { api: `${url}/api` } })
client.on('error', (error) => {
  console.error(error)
  process.exit(1)
})
/** Waits for an event that an action causes, and returns its first value and the result of the action. */
async function after(event, action, fields) {
  const [[first], result] = await Promise.all([once(client, event), act(action, fields)])
  return [first, result]
}

const ready = once(client, Events.ClientReady)
await client.login(token)
await ready
assert.equal(client.user.username, 'cowhand')
const guild = client.guilds.cache.get(guildId)
assert.equal(guild.name, 'farm')
const channel = guild.channels.cache.get(channelId)
assert.equal(channel.name, 'general')
assert.deepEqual([...guild.members.me.roles.cache.values()].map((role) => role.name).sort(), ['@everyone', 'helpers'])
assert.equal((await act('presence')).name, 'the herd')

// Messages, edits and deletions.
const [message, messageId] = await after(Events.MessageCreate, 'say', { text: `<@${client.user.id}> hello` })
assert.equal(message.id, messageId)
assert.equal(message.content, `<@${client.user.id}> hello`)
assert.equal(message.author.username, 'alice')
assert.ok(message.mentions.has(client.user))
assert.ok(Math.abs(message.createdTimestamp - Date.now()) < 600_000)
assert.equal(message.createdTimestamp, Number(BigInt(messageId) >> 22n) + 1_420_070_400_000)
const [edited] = await after(Events.MessageUpdate, 'edit', { message: messageId, text: 'other text' })
assert.equal(edited.reactions.message.content, 'other text')

// Reply, nonce, buttons, reactions, typing.
const row = new ActionRowBuilder().addComponents(
  new ButtonBuilder().setCustomId('yes').setLabel('Yes').setStyle(ButtonStyle.Success),
)
const options = { content: 'an @everyone answer', components: [row], nonce: 'n1', enforceNonce: true, allowedMentions: { parse: [] } }
const reply = await message.reply(options)
assert.equal(reply.reference.messageId, messageId)
assert.equal(reply.mentions.everyone, false)
assert.equal(reply.components[0].components[0].customId, 'yes')
assert.equal((await message.reply(options)).id, reply.id)
await reply.edit({ content: 'edited', components: [] })
assert.equal((await channel.messages.fetch({ message: reply.id, force: true })).content, 'edited')
// Without this flag, the platform fetches the pages of links.
assert.deepEqual(await act('fetched', {}), [])
const linked = await channel.send('see https://example.org/1')
assert.deepEqual(await act('fetched', {}), ['https://example.org/1'])
const hidden = await channel.send({ content: 'see https://example.org/2', flags: MessageFlags.SuppressEmbeds })
assert.ok(hidden.flags.has(MessageFlags.SuppressEmbeds))
await linked.suppressEmbeds(true)
assert.ok((await linked.edit('see https://example.org/3')).flags.has(MessageFlags.SuppressEmbeds))
assert.deepEqual(await act('fetched', {}), ['https://example.org/1'])
await message.react('👀')
assert.deepEqual(await act('reactions', { message: messageId }), [['👀', client.user.id]])
await message.reactions.resolve('👀').users.remove(client.user)
assert.deepEqual(await act('reactions', { message: messageId }), [])
await channel.sendTyping()
await assert.rejects(channel.send('x'.repeat(2001)), (error) => error.code === 50035)
await assert.rejects(channel.messages.fetch('123456789012345678'), (error) => error.code === 10008)
await assert.rejects(message.edit('not mine'), (error) => error.code === 50005)

// Files in both directions.
const sent = await channel.send({ files: [{ attachment: Buffer.from('a\0b\r\n--c'), name: 'log.txt' }] })
const file = sent.attachments.first()
assert.deepEqual([file.name, file.size], ['log.txt', 8])
assert.equal(await (await fetch(file.url)).text(), 'a\0b\r\n--c')
const [withFile] = await after(Events.MessageCreate, 'say_with_file', { text: 'see', name: 'a.txt', content: 'content' })
assert.equal(await (await fetch(withFile.attachments.first().url)).text(), 'content')

// Threads, direct messages, history.
const thread = await message.startThread({ name: 'a thread' })
assert.ok(thread.isThread())
assert.equal(thread.parentId, channelId)
const [inThread] = await after(Events.MessageCreate, 'say', { channel: thread.id, text: 'in the thread' })
assert.equal(inThread.channel.id, thread.id)
const [direct] = await after(Events.MessageCreate, 'say_direct', { text: 'psst' })
assert.equal(direct.guild, null)
assert.equal(direct.content, 'psst')
await direct.reply('psst yourself')
const user = await client.users.fetch(userId).catch(() => direct.author)
assert.equal((await user.createDM()).id, direct.channel.id)
for (let number = 0; number < 5; number += 1) await act('say', { text: `number ${number}` })
const newest = await channel.messages.fetch({ limit: 3, cache: false })
assert.deepEqual([...newest.values()].map((found) => found.content), ['number 4', 'number 3', 'number 2'])
const older = await channel.messages.fetch({ limit: 2, before: newest.lastKey(), cache: false })
assert.deepEqual([...older.values()].map((found) => found.content), ['number 1', 'number 0'])
const newer = await channel.messages.fetch({ limit: 2, after: older.lastKey(), cache: false })
assert.deepEqual([...newer.values()].map((found) => found.content), ['number 2', 'number 1'])
const [deleted] = await after(Events.MessageDelete, 'delete', { message: messageId })
assert.equal(deleted.id, messageId)

// Slash commands and buttons.
const command = new SlashCommandBuilder()
  .setName('skill')
  .setDescription('Runs a skill')
  .addStringOption((option) => option.setName('name').setDescription('Its name').setRequired(true).addChoices({ name: 'a', value: 'a' }))
await client.application.commands.set([command])
const registered = await client.application.commands.fetch()
assert.equal(registered.first().name, 'skill')
// As it was sent: without the keys that have no value.
assert.ok(registered.first().equals(JSON.parse(JSON.stringify(command))))
await guild.commands.set([])

async function interact(action, fields, use) {
  const used = once(client, Events.InteractionCreate).then(([interaction]) => use(interaction))
  const [text] = await Promise.all([act(action, fields), used])
  return text
}
const slash = { name: 'skill', options: [['name', 'a']] }
const now = await interact('slash', slash, async (interaction) => {
  assert.ok(interaction.isChatInputCommand() && interaction.inGuild())
  assert.equal(interaction.options.getString('name'), 'a')
  await interaction.reply({ content: 'now', flags: MessageFlags.Ephemeral })
  await assert.rejects(interaction.client.rest.post(`/interactions/${interaction.id}/${interaction.token}/callback`, { body: { type: 5 }, auth: false }), (error) => error.code === 40060)
})
assert.equal(now, 'now')
const later = await interact('slash', slash, async (interaction) => {
  await interaction.deferReply({ flags: MessageFlags.Ephemeral })
  await interaction.editReply('later')
})
assert.equal(later, 'later')
const question = await channel.send({ content: 'Really?', components: [row] })
const pressed = await interact('press', { message: question.id, button: 'yes' }, async (interaction) => {
  assert.ok(interaction.isButton())
  assert.deepEqual([interaction.customId, interaction.message.id, interaction.user.id], ['yes', question.id, userId])
  await interaction.reply({ content: 'pressed', flags: MessageFlags.Ephemeral })
})
assert.equal(pressed, 'pressed')
assert.equal(await interact('press', { message: question.id, button: 'yes' }, (interaction) => interaction.deferUpdate()), '')

// Rate limits.
for (const isGlobal of [false, true]) {
  await act('rate_limit', { isGlobal })
  const began = Date.now()
  await channel.send('after the limit')
  assert.ok(Date.now() - began >= 200)
}

// Connections: requested reconnect, loss with missed messages, invalid sessions.
await after(Events.ShardResume, 'reconnect')
assert.deepEqual(await act('connections'), [1, 1])
const missed = once(client, Events.MessageCreate)
const resumed = once(client, Events.ShardResume)
await act('drop_connections')
await act('say', { text: 'missed' })
const [[missedMessage]] = await Promise.all([missed, resumed])
assert.equal(missedMessage.content, 'missed')
assert.deepEqual(await act('connections'), [1, 2])
await after(Events.ShardReady, 'invalidate', { isResumable: false })
assert.deepEqual(await act('connections'), [2, 2])

// A second bot in the same channel: its own account, application, posts, commands and direct conversations.
const second = new Client({ intents, partials: [Partials.Channel], rest: { api: `${url}/api` } })
const secondReady = once(second, Events.ClientReady)
await second.login(secondToken)
await secondReady
assert.equal(second.user.username, 'second')
assert.notEqual(second.user.id, client.user.id)
assert.notEqual(second.application.id, client.application.id)
const sees = (bot) => once(bot, Events.MessageCreate).then(([seen]) => seen)
const [[seen, seenBySecond], calledId] = await Promise.all([
  Promise.all([sees(client), sees(second)]),
  act('say', { text: `<@${second.user.id}> report` }),
])
assert.deepEqual([seen.id, seenBySecond.id], [calledId, calledId])
assert.deepEqual([seen.mentions.has(client.user), seenBySecond.mentions.has(second.user)], [false, true])
const secondChannel = second.channels.cache.get(channelId)
const [ofSecond] = await Promise.all([sees(client), secondChannel.send({ content: 'from the second', nonce: 'n1', enforceNonce: true })])
assert.deepEqual([ofSecond.author.id, ofSecond.author.bot, ofSecond.content], [second.user.id, true, 'from the second'])
await assert.rejects(ofSecond.edit('not mine'), (error) => error.code === 50005)
await seenBySecond.react('👀')
const reacted = await channel.messages.fetch({ message: calledId, force: true })
assert.equal(reacted.reactions.resolve('👀').me, false)
assert.equal((await secondChannel.messages.fetch({ message: calledId, force: true })).reactions.resolve('👀').me, true)
assert.equal((await second.application.commands.fetch()).size, 0)
assert.equal((await client.application.commands.fetch()).size, 1)
const [directOfSecond] = await Promise.all([sees(second), act('say_direct', { bot: second.user.id, text: 'only for you' })])
assert.equal(directOfSecond.content, 'only for you')
assert.notEqual(directOfSecond.channel.id, direct.channel.id)
await assert.rejects(client.rest.get(`/channels/${directOfSecond.channel.id}`), (error) => error.code === 10003)
const pressedBySecond = await secondChannel.send({ content: 'Really?', components: [row] })
const [press] = await Promise.all([
  once(second, Events.InteractionCreate).then(async ([interaction]) => {
    await interaction.reply({ content: 'the second', flags: MessageFlags.Ephemeral })
    return interaction
  }),
  act('press', { message: pressedBySecond.id, button: 'yes' }),
])
assert.equal(press.applicationId, second.application.id)

// The token is revoked.
const gone = once(client, Events.Invalidated).catch(() => {})
const closed = once(client, Events.ShardDisconnect)
await act('revoke_token')
await Promise.race([gone, closed])
await assert.rejects(channel.send('x'), (error) => error.status === 401)
// The other bot keeps its token and its connection.
await secondChannel.send('still here')
assert.ok(second.isReady())
await second.destroy()
await client.destroy()
const refused = new Client({ intents, rest: { api: `${url}/api` } })
await assert.rejects(refused.login(token), (error) => error.code === 'TokenInvalid' || error.status === 401)
console.error('discord.js accepts the fake')
process.exit(0)
