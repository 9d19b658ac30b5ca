"""Decides whether an image must be built again: a key over its Dockerfile and the files that one copies."""

import hashlib
import json
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

EVERYTHING = "."


def copied_sources(dockerfile: str) -> list[str]:
    """Paths in the context that COPY and ADD read. [EVERYTHING] where a variable makes that unknowable."""
    sources: list[str] = []
    for instruction in _instructions(dockerfile):
        word, _, rest = instruction.partition(" ")
        if word.upper() not in ("COPY", "ADD") or "--from=" in rest:
            continue
        arguments = _arguments(rest)
        if any("$" in argument for argument in arguments[:-1]):
            return [EVERYTHING]
        sources += [_normal(argument) for argument in arguments[:-1] if not argument.startswith("<<")]
    return sources


def _instructions(dockerfile: str) -> list[str]:
    joined = re.sub(r"\\\s*\n", " ", re.sub(r"^\s*#.*\n?", "", dockerfile, flags=re.MULTILINE))
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]


def _arguments(rest: str) -> list[str]:
    without_flags = re.sub(r"(^|\s)--\S+", " ", rest).strip()
    if without_flags.startswith("["):
        return [str(argument) for argument in json.loads(without_flags)]
    return without_flags.split()


def _normal(source: str) -> str:
    return source.removeprefix("./").strip("/") or EVERYTHING


def is_copied(path: str, sources: list[str]) -> bool:
    return any(
        source == EVERYTHING or path == source or path.startswith(f"{source}/") or _matches(path, source)
        for source in sources
    )


def _matches(path: str, pattern: str) -> bool:
    """A pattern matches a file, or a folder with all that is in it."""
    parts = path.split("/")
    return any(fnmatch("/".join(parts[: count + 1]), pattern) for count in range(len(parts)))


def context_files(context: Path) -> list[str]:
    """What git knows or would add; every file where there is no repository."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=context,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        return sorted(str(path.relative_to(context)) for path in context.rglob("*") if path.is_file())
    return sorted({name for name in listing.stdout.split("\0") if name and (context / name).is_file()})


def content_key(dockerfile: Path, context: Path, target: str | None, base: str) -> str:
    """Changes when the image would: other instructions, other files, another base."""
    text = dockerfile.read_text()
    sources = copied_sources(text)
    digest = hashlib.sha256(json.dumps([text, target, base]).encode())
    for name in context_files(context):
        if is_copied(name, sources):
            path = context / name
            executable = bool(path.stat().st_mode & 0o100)
            digest.update(json.dumps([name, executable]).encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:24]
