// Loaded before a server's own program: the server ends when whoever holds the other end of its standard input is
// gone, however that came about.
process.stdin.resume().on("end", () => process.exit()).on("error", () => process.exit());
