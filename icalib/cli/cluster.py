"""Verbs about clusters: doctor, submit, jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from icalib.api.settings import parsed_settings
from icalib.cli.app import app, verb
from icalib.cli.options import Address, Json, Runs
from icalib.cli.output import say
from icalib.core.check import Check
from icalib.core.errors import SettingError
from icalib.core.process import QUIET
from icalib.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typer.core import TyperGroup

    from icalib.core.cluster_job import ClusterJob, JobFile
    from icalib.distributed.job_server import JobServer

Dashboard = Annotated[
    str | None,
    typer.Option(
        help="Dashboard of the cluster's head, http://HOST:8265; default: RAY_API_SERVER_ADDRESS, else the cluster "
        "that runs on this machine."
    ),
]

_NO_JOBS = ("submit", "jobs", "label")  # about jobs, or with people in the middle


@verb
def doctor(
    address: Address = None,
    runs: Runs = Path("runs"),
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Training workers that must fit and reach each other; default: one per GPU, or two."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a machine or cluster before it costs money; each failure says what to do about it.

    Every node reports its versions and token, and whether it shares --runs with the others; then a tiny ranker is
    trained by the workers, on GPUs if there are any, and scores some shards. The exit code is 1 if anything failed.
    """
    from icalib.reports.console import people_console
    from icalib.reports.terminal import print_check

    console, checks = people_console(), list[Check]()

    def begins(what: str) -> None:
        status.update(what)
        if not console.is_terminal and not QUIET.get():  # a log has no status line
            say(f"{what} …")

    with console.status("") as status:
        begins("starting Ray")
        for check in _examined(address, runs.resolve(), workers, lambda what: begins(f"checking {what}")):
            print_check(check, console)
            checks.append(check)
    failed = [check.name for check in checks if check.status == "fail"]
    say(f"Not ready: {', '.join(failed)}. Do what the arrows say, then look again." if failed else "Ready.")
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    raise typer.Exit(int(bool(failed)))


def _examined(address: str | None, runs: Path, workers: int | None, begins: Callable[[str], None]) -> Iterator[Check]:
    from icalib.distributed.doctor import examine, join
    from icalib.distributed.session import stop

    joined = join(address)
    yield joined
    if joined.status == "fail":
        return
    try:
        yield from examine(runs, workers, begins)
    finally:
        stop()


@verb
def submit(
    file: Annotated[Path, typer.Argument(help="Job file (YAML); see jobs/ for some to start from.")],
    address: Dashboard = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change the job: a dotted key of its file and a value, e.g. --set options.data=/shared/pools/mine "
            "--set options.set.regime.num_rounds=2 --set resources.memory=8GiB. May be given again.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Submit it again although it has succeeded, or is pending.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Don't follow the logs.")] = False,
) -> None:
    """Run a verb on a cluster, as a job that continues when you leave.

    The code travels: the project you are in (the nearest folder with a pyproject.toml) and, where that isn't icalib's
    checkout, the icalib that is installed here. Data, weights and files named like secrets (token, *.env, *.pem, …)
    don't: paths in the job are the cluster's, absolute or URIs, on storage that all nodes share.

    The same job again (verb, arguments and options alike) rejoins the one that runs, says so if it has succeeded, and
    otherwise resumes it. Ctrl-C leaves it running. The exit code is the job's.

    A cluster with token authentication needs the token here too: RAY_AUTH_TOKEN_PATH=FILE, a copy of the head's.
    """
    from icalib.core.cluster_job import read_job_file

    wanted = read_job_file(file, parsed_settings(settings or ()))
    command = ["icalib", *command_words(wanted, file)]
    server = _server(address)
    job, outcome = server.submit(wanted, command, Path.cwd(), again=again)
    if outcome == "finished":
        say(
            f"{job.id} has succeeded already; {_command('logs', job.id, address)} shows its log. --again submits it "
            "again, and finished runs are reused; `--set options.fresh=true` recomputes everything from scratch."
        )
        return
    say(f"submitted {job.id}" if outcome == "submitted" else f"{job.id} is {job.state} already; rejoining it")
    if detach:
        say(_rejoin(job.id, address))
    else:
        _follow(server, job.id, address)


@verb
def jobs(
    action: Annotated[
        Literal["list", "logs", "stop"],
        typer.Argument(help="logs: show what a job has printed. stop: end it; the same `icalib submit` resumes it."),
    ] = "list",
    job: Annotated[str, typer.Argument(metavar="[ID]", help="The id that `icalib jobs` shows.")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show the log until the job ends; its exit code is this command's.")
    ] = False,
    address: Dashboard = None,
    as_json: Json = False,
) -> None:
    """List the jobs of a cluster since it started; show the log of one, or stop it."""
    if (action == "list") == bool(job):
        raise SettingError("expected `icalib jobs`, `icalib jobs logs ID` or `icalib jobs stop ID`.")
    server = _server(address)
    if action == "list":
        from icalib.reports.terminal import print_jobs

        found = server.jobs()
        print_jobs(found, server.address)
        if as_json:
            typer.echo(json.dumps([asdict(job) for job in found]))
    elif action == "stop":
        was_pending = server.job(job).state == "pending"
        if not server.stop(job):
            say(f"{job} has already ended: {server.job(job).state}")
        elif was_pending:
            say(f"{job} is stopped when it starts, or when Ray gives up, 15 minutes after it was submitted")
        else:
            say(f"{job} is being stopped")
    elif follow:
        _follow(server, job, address)
    else:
        typer.echo(_for_terminal(server.logs(job)), nl=False)


def command_words(job: JobFile, file: Path) -> list[str]:
    """Return the words of a job's command after `icalib`, checked by the verb's own parser; paths must be absolute."""
    from typer.main import get_command

    root: TyperGroup = get_command(app)  # pyright: ignore[reportAssignmentType]
    verbs: dict[str, Any] = {name: verb for name, verb in root.commands.items() if name not in _NO_JOBS}
    if job.verb not in verbs:
        raise SettingError(f"{file}: `verb: {job.verb}` can't be a job. There are: {', '.join(verbs)}.")
    for argument in job.arguments:
        if argument.startswith("-"):
            raise SettingError(f"{file}: `arguments` has {argument}, which looks like an option: it goes to `options`.")
    for key in ("address", "help"):
        if key in job.options:
            raise SettingError(
                f"{file}: `options.{key}` isn't for jobs, which run on the cluster they are submitted to."
            )
    words = [*job.arguments, *(word for key, value in job.options.items() for word in _option_words(key, value))]
    verb = verbs[job.verb]
    repeatable = {name for parameter in verb.params if getattr(parameter, "multiple", False) for name in parameter.opts}
    for key, value in job.options.items():
        if isinstance(value, list) and len(value) > 1 and f"--{key.replace('_', '-')}" not in repeatable:
            raise SettingError(f"{file}: `options.{key}` has {len(value)} values, and takes one, in one text.")
    try:
        context = verb.make_context(job.verb, list(words))
    except typer.TyperException as error:
        raise SettingError(
            f"{file}: `icalib {job.verb}` can't be run like this: {error.format_message()} "
            f"`icalib {job.verb} --help` explains its arguments and options."
        ) from error
    except SettingError as error:
        raise SettingError(f"{file}: {error}") from error
    for parameter in verb.params:
        option = parameter.opts[0]
        key = f"options.{option.removeprefix('--')}" if option.startswith("--") else "arguments"
        found = context.params[parameter.name]
        for path in found if isinstance(found, list | tuple) else [found]:
            if isinstance(path, Path) and not path.is_absolute():
                raise SettingError(
                    f"{file}: `{key}` is the relative path {path}. A job runs in an unpacked copy of the code, which "
                    f"is deleted with it: give `{key}` an absolute path on storage that all nodes share, or a URI."
                )
    try:
        _check_methods(job.verb, context.params)
    except SettingError as error:
        raise SettingError(f"{file}: {error}") from error
    return [job.verb, *words]


def _check_methods(verb: str, found: Mapping[str, Any]) -> None:
    """Refuse methods, presets and settings that icalib doesn't have; a project's own are left to the job."""
    from icalib.methods.catalogue import EXTERNAL, module_path

    names = found.get("methods") or [name for name in (found.get("method"),) if name]
    bases = [name.partition("@")[0] for name in names]
    ours = [base for base in bases if not base.startswith(EXTERNAL) and not {".", "/"} & set(base)]
    for base in ours:
        module_path(base)
    settings, preset = parsed_settings(found.get("settings") or ()), found.get("preset")
    own = parsed_settings([text for name in names for text in name.partition("@")[2].split(",") if text])
    if len(ours) < len(bases) or not (settings or preset or own):
        return
    for value in (*settings.values(), *own.values()):
        if isinstance(value, Mapping) or (isinstance(value, str) and "." in value):  # perhaps a component's import path
            return
    from icalib.api.settings import UNTRAINED, check_preset, check_settings, composed

    if verb == "run":
        composed(names[0], preset, settings)
    elif verb in ("compare", "curve"):
        check_preset(preset, names)
        check_settings(settings, [composed(name, preset, settings, lenient=True) for name in (*UNTRAINED, *names)])


def _option_words(key: str, value: Any) -> list[str]:
    """An option's words: a flag, one value, several, or NAME=VALUE several times."""
    option = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, dict):
        value = [f"{name}={json.dumps(inner)}" for name, inner in value.items()]  # JSON is YAML, which --set reads
    return [word for each in (value if isinstance(value, list) else [value]) for word in (option, str(each))]


def _server(address: str | None) -> JobServer:
    from icalib.distributed.job_server import JobServer
    from icalib.distributed.session import protect_token

    protect_token(say, create=False)
    server = JobServer(address)
    if server.is_exposed:
        say(
            f"warning: {server.address} is plain http, so token and logs are sent unencrypted; "
            "`ssh -L 8265:127.0.0.1:8265 HEAD` and http://127.0.0.1:8265, or https, encrypt them."
        )
    return server


def _follow(server: JobServer, job_id: str, address: str | None) -> None:
    try:
        job = server.follow(job_id, lambda line: print(_for_terminal(line), flush=True), _say_state, _say_delay)
    except KeyboardInterrupt as leave:
        say(f"{job_id} continues. {_rejoin(job_id, address)}")
        raise typer.Exit(130) from leave
    raise typer.Exit(job.exit_code if job.exit_code is not None else int(job.state != "succeeded"))


def _for_terminal(log: str) -> str:
    """Escape control characters, which may do anything to a terminal; a file or program gets them as they are."""
    return printable(log) if sys.stdout.isatty() else log


def _say_state(job: ClusterJob) -> None:
    notes = {
        "pending": ", waiting for room, or its environment is being made",
        "running": "; Ctrl-C leaves it running",
        "failed": ": " + next(iter(job.message.partition(", last available logs")[0].splitlines()), "without a reason"),
    }
    say(f"{job.id} {job.state}{notes.get(job.state, '')}")


def _say_delay() -> None:
    say(
        "Still pending: perhaps no node has room for the job's own process. Ray gives up after 15 minutes. Ctrl-C and, "
        "e.g., --set resources.memory=1GiB --again submit it with less."
    )


def _rejoin(job_id: str, address: str | None) -> str:
    follow, stop = _command("logs", job_id, address, "--follow"), _command("stop", job_id, address)
    return f"Rejoin it: {follow}   end it: {stop}"


def _command(action: str, job_id: str, address: str | None, *options: str) -> str:
    return " ".join(["icalib jobs", action, job_id, *options, *(["--address", address] if address else [])])
