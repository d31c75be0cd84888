// Ends a server when its standard input is closed, for example because the test that started it was killed. Node loads
// this file before the program of the server.
process.stdin.resume().on("end", () => process.exit()).on("error", () => process.exit());
