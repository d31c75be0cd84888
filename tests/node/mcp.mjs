// Runs the official MCP client: lists the tools of a server on standard input and output, and calls the given tools.
// Arguments: a JSON list of calls [[tool, arguments], …], then the server's program and its arguments. Prints the tools
// and the result of each call.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [calls, command, ...args] = process.argv.slice(2);
const transport = new StdioClientTransport({ command, args, env: process.env, cwd: process.cwd() });
const client = new Client({ name: 'test', version: '1' });
await client.connect(transport);
const { tools } = await client.listTools();
const results = [];
for (const [name, given] of JSON.parse(calls)) {
  try {
    const { content, isError } = await client.callTool({ name, arguments: given });
    results.push({ name, failed: isError === true, text: content.map((part) => part.text).join('') });
  } catch (error) {
    results.push({ name, refused: String(error.message) });
  }
}
await client.close();
console.log(JSON.stringify({ server: client.getServerVersion()?.name, tools, results }));
