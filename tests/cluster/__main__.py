"""The command line, `python3 -m tests.cluster COMMAND`. Words in, words out; what a command does is elsewhere."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from . import gotools, host
from .commands import ClusterError
from .kubectl import client_environment, client_path
from .local import LocalCluster, machine_plan, require_root
from .processes import marked_processes
from .progress import carry_out
from .providers import PROVIDERS, VARIABLE, cluster

CLIENTS = ("kubectl", "helm")


def main(argv: Sequence[str]) -> int:
    try:
        if argv and argv[0] in CLIENTS:
            pass_through(argv[0], argv[1:])
        arguments = parser().parse_args(argv)
        command: Callable[[argparse.Namespace], int] = arguments.command
        return command(arguments)
    except ClusterError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python3 -m tests.cluster", description="A Kubernetes cluster for tests.")
    top.add_argument("--provider", choices=PROVIDERS, help=f"default: ${VARIABLE}, or what this machine has")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=words, description=words)
        one.add_argument("--provider", choices=PROVIDERS, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        one.set_defaults(command=command)
        return one

    add("up", up, "bring the cluster up, if it is not")
    add("down", down, "take the cluster down and leave nothing of it")
    add("status", status, "say what runs")
    tools = add("tools", build_tools, "build the cluster's programs, or those named")
    tools.add_argument("programs", nargs="*", metavar="PROGRAM")
    add(
        "images",
        build_base_images,
        "make whatever the local provider lacks: packages, programs, base images; nothing for others",
    )
    build = add("build", build_image, "build an image from a Dockerfile, unless it is up to date")
    build.add_argument("tag")
    build.add_argument("context", type=Path)
    build.add_argument("--file", type=Path, help="default: CONTEXT/Dockerfile")
    build.add_argument("--target")
    add("load", load_image, "put a built image on every node").add_argument("tag")
    for client in CLIENTS:
        commands.add_parser(client, help=f"run {client} on the cluster")
    return top


def up(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    one = cluster(arguments.provider)
    made = one.create()
    verb = "up" if made else "already up"
    print(f"{verb} after {time.monotonic() - started:.1f} s: export KUBECONFIG={one.kubeconfig_path}")
    return 0


def down(arguments: argparse.Namespace) -> int:
    cluster(arguments.provider).delete()
    print("down")
    return 0


def status(arguments: argparse.Namespace) -> int:
    for process in marked_processes():
        print(f"{process.pid:>8}  {process.name:<26} {process.program:<24} {process.state.parent}")
    for leftover in host.leftovers():
        print(f"{'':>8}  {leftover}")
    one = cluster(arguments.provider)
    print(one.kubectl("get", "nodes", "-o", "wide", timeout=30) if one.kubeconfig_path.exists() else "down")
    return 0


def build_tools(arguments: argparse.Namespace) -> int:
    programs = arguments.programs or sorted(gotools.catalogue())
    carry_out(gotools.plan(programs))
    for program in programs:
        print(gotools.path_of(program))
    return 0


def build_base_images(arguments: argparse.Namespace) -> int:
    if isinstance(cluster(arguments.provider), LocalCluster):
        require_root()
        carry_out(machine_plan())
    return 0


def build_image(arguments: argparse.Namespace) -> int:
    dockerfile = arguments.file or arguments.context / "Dockerfile"
    one = cluster(arguments.provider)
    one.build_image(arguments.tag, dockerfile.resolve(), arguments.context.resolve(), arguments.target)
    return 0


def load_image(arguments: argparse.Namespace) -> int:
    cluster(arguments.provider).load_docker_image(arguments.tag)
    return 0


def pass_through(client: str, arguments: Sequence[str]) -> NoReturn:
    """Become the client, so that its terminal, signals and exit code are the user's."""
    kubeconfig = cluster().kubeconfig_path
    os.execve(client_path(client), [client, *arguments], client_environment(kubeconfig))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
