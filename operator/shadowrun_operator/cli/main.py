"""The `shadowrun` command: arguments, output and exit status.

shadowrun gate NAME     wait for the end; exit 0 Pass, 1 Fail, 2 Inconclusive, 3 anything else
shadowrun report NAME   print the report of a run
shadowrun version       print the version
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NoReturn

from shadowrun_operator.api.quantities import Duration
from shadowrun_operator.cli.exits import OF_VERDICT, CommandError, Exit
from shadowrun_operator.cli.gate import Waiting, ended
from shadowrun_operator.cli.reading import Reader, cluster_reader
from shadowrun_operator.cli.report import KEY, shown_report
from shadowrun_operator.cli.seen import SeenRun
from shadowrun_operator.cli.text import report_text, verdict_text

Connect = Callable[[str | None, str | None, str | None], Reader]
"""Makes a reader from a kubeconfig, a context and a namespace, each of which may be absent."""


class _Parser(argparse.ArgumentParser):
    """Ends with 3 on wrong usage: argparse's own 2 would read as Inconclusive."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.ERROR, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None, connect: Connect = cluster_reader) -> int:
    """Run the command; the exit status is the result."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "version":
            print(version("shadowrun"))
            return Exit.PASS
        reader = connect(options.kubeconfig, options.context, options.namespace)
        return _gate(reader, options) if options.command == "gate" else _report(reader, options)
    except CommandError as error:
        print(f"shadowrun: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("shadowrun: interrupted", file=sys.stderr)
    return Exit.ERROR


def _gate(reader: Reader, options: argparse.Namespace) -> int:
    run = ended(
        Waiting(
            read=lambda: SeenRun.parse(reader.run(options.name)),
            clock=time.monotonic,
            sleep=time.sleep,
            told=lambda news: print(f"{options.name}: {news}", file=sys.stderr, flush=True),
        ),
        options.timeout.seconds,
    )
    verdict = run.status.verdict
    if verdict is None:
        raise CommandError(f"ShadowRun {options.name} is complete and has no verdict")
    print(verdict_text(run))
    return OF_VERDICT[verdict]


def _report(reader: Reader, options: argparse.Namespace) -> int:
    run = SeenRun.parse(reader.run(options.name))
    reference = run.status.report_ref
    if reference is None:
        raise CommandError(f"ShadowRun {options.name} has no report (phase {run.status.phase})")
    raw = reader.config_map(reference.name).get(KEY)
    if raw is None:
        raise CommandError(f"ConfigMap {reference.name} has no key {KEY}")
    print(raw if options.json else report_text(options.name, shown_report(raw)))
    return Exit.PASS


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="shadowrun", description="Verdicts and reports of shadow experiments.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    gate = commands.add_parser("gate", help="wait for the end of a run; exit 0 Pass, 1 Fail, 2 Inconclusive, 3 error")
    gate.add_argument("--timeout", type=_duration, default=Duration("45m"), help="longest wait (default: 45m)")
    report = commands.add_parser("report", help="print the report of a run")
    report.add_argument("--json", action="store_true", help="as it is stored")
    for command in (gate, report):
        command.add_argument("name", metavar="NAME", help="name of the ShadowRun")
        command.add_argument("-n", "--namespace", help="default: that of the context")
        command.add_argument("--kubeconfig", help="default: $KUBECONFIG or ~/.kube/config")
        command.add_argument("--context", help="default: the current one")
    commands.add_parser("version", help="print the version")
    return parser


def _duration(text: str) -> Duration:
    try:
        return Duration(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from wrong


if __name__ == "__main__":
    sys.exit(main())
