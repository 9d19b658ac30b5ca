"""The `shadowrun` command: arguments, output and exit status.

shadowrun gate NAME     wait for the end; exit 0 Pass, 1 Fail, 2 Inconclusive, 3 anything else
shadowrun report NAME   print the report of a run
shadowrun plan -f FILE  say without a cluster whether a run can decide in its time; exit 0 it can, 2 it cannot, 3 error
shadowrun snippet -f FILE  print the mirror filter of a run, for a rule of an HTTPRoute
shadowrun version       print the version
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NoReturn

from shadowrun_operator.api.quantities import Duration, Percent
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
        if options.command == "plan":
            return _plan(options)
        if options.command == "snippet":
            return _snippet(options)
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


def _plan(options: argparse.Namespace) -> int:
    # Imported here: the planner computes, and a machine that only reads a verdict need not have what that takes.
    from shadowrun_operator.cli.plan import plan_of, plan_text, read_run, traffic_of

    run = read_run(options.file)
    traffic = traffic_of(
        run.spec,
        options.pairs_per_second,
        options.class_share,
        discordance=options.discordance,
        effect=options.effect,
        spread=options.spread,
    )
    plan = plan_of(run.spec, traffic)
    print(plan_text(run.name, run.spec, traffic, plan))
    return Exit.PASS if plan.decidable else Exit.INCONCLUSIVE


def _snippet(options: argparse.Namespace) -> int:
    from shadowrun_operator.cli.plan import read_run
    from shadowrun_operator.cli.snippet import snippet_text

    print(snippet_text(read_run(options.file).spec))
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
    _add_plan(commands.add_parser("plan", help="say whether a run can decide in its time; exit 0 yes, 2 no, 3 error"))
    snippet = commands.add_parser("snippet", help="print the mirror filter of a run, for a rule of an HTTPRoute")
    snippet.add_argument("-f", "--file", required=True, help="manifest of the ShadowRun")
    commands.add_parser("version", help="print the version")
    return parser


def _add_plan(plan: argparse.ArgumentParser) -> None:
    plan.add_argument("-f", "--file", required=True, help="manifest of the ShadowRun")
    plan.add_argument("--pairs-per-second", type=_positive, required=True, help="selected pairs a second of the run")
    plan.add_argument(
        "--class-share",
        type=_class_share,
        action="append",
        default=[],
        metavar="CLASS=SHARE",
        help="share of a class among the pairs, such as long=5%%; repeatable (default: what is left, evenly)",
    )
    plan.add_argument(
        "--discordance",
        type=_percent,
        help="share of pairs in which one arm is within its limit and the other is not (default: 4%% for shares,"
        " p(1-p) for latencies)",
    )
    plan.add_argument(
        "--effect",
        type=_percent,
        help="by how much a candidate that must be Better is so (default: twice the margin, at least 10%% for latencies"
        " and 2%% for shares)",
    )
    plan.add_argument(
        "--spread", type=_positive, default=0.8, help="standard deviation of the latencies' logarithms (default: 0.8)"
    )


def _class_share(text: str) -> tuple[str, Percent]:
    name, _, share = text.partition("=")
    return name, _percent(share)


def _percent(text: str) -> Percent:
    try:
        return Percent(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from wrong


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from wrong
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _duration(text: str) -> Duration:
    try:
        return Duration(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from wrong


if __name__ == "__main__":
    sys.exit(main())
