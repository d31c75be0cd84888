#!/usr/bin/env python3
"""Checks the structure of the code. Prints every breach, and exits with 1 if there is one. `scripts/lint` runs it.

  cycles  the top-level modules of a crate have no circular dependencies
  types   no two types that other files can use have the same name in the workspace
  modules the table of modules in the README.md of a crate names each top-level module; a crate without a README.md
          has this table in ARCHITECTURE.md
  paths   a file or folder that CONTRIBUTING.md names in backticks exists, at the root or below `crates/`
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def code_of(file):
    """Returns the code of a Rust file without comments and without the tests at its end."""
    lines = []
    for line in file.read_text().splitlines():
        if line == "#[cfg(test)]":
            break
        lines.append(re.sub(r"//.*", "", line))
    return "\n".join(lines)


def is_test(file):
    return "tests" in file.parts or file.stem == "tests"


def top_level(items):
    """Splits the inside of `{a, b::{c, d}}` at the commas that are not nested."""
    depth, current = 0, ""
    for letter in items:
        if letter == "," and depth == 0:
            yield current
            current = ""
            continue
        depth += (letter == "{") - (letter == "}")
        current += letter
    yield current


def names_after(code, prefix):
    """Yields the names that directly follow a path prefix, also in braces."""
    for match in re.finditer(r"(?<![\w:])" + re.escape(prefix) + r"(\w+|\{)", code):
        if match[1] != "{":
            yield match[1]
            continue
        depth, start, end = 1, match.end(), match.end()
        while depth and end < len(code):
            depth += (code[end] == "{") - (code[end] == "}")
            end += 1
        for item in top_level(code[start : end - 1]):
            name = re.match(r"\s*(\w+)", item)
            if name:
                yield name[1]


def modules_of(source):
    """Returns the top-level modules of a crate, and a map: module -> used module -> a file that uses it."""
    names = {file.stem if file.suffix == ".rs" else file.name for file in source.iterdir()} - {"lib", "main"}
    exported = {}
    root = source / "lib.rs"
    for match in re.finditer(r"pub(?:\([^)]*\))? use (\w+)::(\{[^}]*\}|\w+)", root.read_text() if root.exists() else ""):
        for name in re.findall(r"\w+", match[2]):
            exported[name] = match[1]
    edges = defaultdict(dict)
    for file in sorted(source.rglob("*.rs")):
        path = file.relative_to(source)
        module = path.parts[0].removesuffix(".rs")
        if module in ("lib", "main") or is_test(path):
            continue
        code = code_of(file)
        depth = len(path.parts) - (file.name == "mod.rs")
        used = [*names_after(code, "crate::"), *names_after(code, "super::" * depth)]
        for name in used:
            other = name if name in names else exported.get(name)
            if other and other != module:
                edges[module].setdefault(other, path)
    return names, edges


def cycle_through(module, edges):
    """Returns the shortest cycle through a module, or None."""
    ways, seen = [[module]], {module}
    while ways:
        way = ways.pop(0)
        for other in sorted(edges[way[-1]]):
            if other == module:
                return way
            if other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return None


def cycles():
    """Returns each module in a cycle, as `crate module`, with the steps of the cycle."""
    found = {}
    for source in sorted(ROOT.glob("crates/*/src")):
        names, edges = modules_of(source)
        for module in sorted(names):
            way = cycle_through(module, edges)
            if way:
                steps = [f"{a} -> {b} ({edges[a][b]})" for a, b in zip(way, [*way[1:], module])]
                found[f"{source.parent.name} {module}"] = ", ".join(steps)
    return found


def repeated_types():
    """Returns each type name that more than one file exports, with these files."""
    places = defaultdict(set)
    pattern = re.compile(r"^\s*pub(?:\([^)]*\))? (?:struct|enum|trait|union|type) (\w+)", re.M)
    for file in sorted(ROOT.glob("crates/*/src/**/*.rs")):
        if not is_test(file.relative_to(ROOT / "crates")):
            for name in pattern.findall(code_of(file)):
                places[name].add(str(file.relative_to(ROOT / "crates")))
    return {name: ", ".join(sorted(files)) for name, files in places.items() if len(files) > 1}


def unnamed_modules():
    """Returns each top-level module that the tables of its crate do not name, with what to do."""
    unnamed = {}
    for source in sorted(ROOT.glob("crates/*/src")):
        readme = source.parent / "README.md"
        page = readme if readme.exists() else ROOT / "ARCHITECTURE.md"
        rows = "".join(line for line in page.read_text().splitlines() if line.startswith("|"))
        for module in modules_of(source)[0]:
            if not re.search(rf"`{module}/?`", rows):
                unnamed[f"{source.parent.name} {module}"] = (
                    f"no table names this module. Add a row to the table of modules in {page.relative_to(ROOT)}"
                )
    return unnamed


def missing_paths():
    """Returns each path in CONTRIBUTING.md that does not exist, with its line."""
    path = re.compile(r"`((?:[\w-]+/)+(?:[\w-]+\.(?:rs|md|mjs|js|css|json|toml))?)`")
    missing = {}
    for number, line in enumerate((ROOT / "CONTRIBUTING.md").read_text().splitlines(), 1):
        for name in path.findall(line):
            if not (ROOT / name).exists() and not (ROOT / "crates" / name).exists():
                missing[name] = f"CONTRIBUTING.md:{number} names it, and it does not exist"
    return missing


def main():
    found = {f"cycle {key}": how for key, how in cycles().items()}
    found |= {f"type {key}": where for key, where in repeated_types().items()}
    found |= {f"module {key}": what for key, what in unnamed_modules().items()}
    found |= {f"path {key}": where for key, where in missing_paths().items()}
    for key, how in sorted(found.items()):
        print(f"{key}: {how}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
