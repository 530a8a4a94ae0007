"""The commands of `mixer`: their arguments and their help. Each imports the verb that it needs when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from mixer.cli.console import Reply, say
from mixer.cli.edge import USAGE

BEGINNING = """\b
Begin with:
  mixer init mix.yaml --from DATA   a config for what lies in DATA
  mixer plan mix.yaml               what it would give, exactly
  mixer run mix.yaml                make it; run it again after any failure

\b
Exit codes:
  0  done, or nothing to do        4  damage found
  1  failed, can be resumed        5  not enough data
  2  bad usage, config or input    6  another start took over
  3  inputs or config changed      130, 143  stopped, can be resumed
"""

app = typer.Typer(
    epilog=BEGINNING,
    # Plain help takes a third of the time of coloured panels, and can be searched and copied.
    rich_markup_mode=None,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)

Config = Annotated[str, typer.Argument(metavar="CONFIG", help="The YAML file that says what to mix.")]
Output = Annotated[
    str, typer.Argument(metavar="OUTPUT", help="Where a run is: a folder or a URL such as s3://bucket/prefix.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout, also on failure.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the log and, on failure, the traceback.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def _example(*lines: str) -> str:
    """Return lines as the end of a command's help; the first one keeps the rest from being filled up."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def _version(asked: bool) -> None:  # noqa: FBT001 -- typer calls it so
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 -- only when asked for

        typer.echo(f"mixer {version('mixer')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Mix datasets by exact integer weights into Parquet shards, and resume to the same bytes."""
    del version
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(USAGE)


@app.command(epilog=_example("mixer init mix.yaml --from s3://lake/corpora/"))
def init(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="The config to write.")] = "mix.yaml",
    *,
    source: Annotated[
        str | None, typer.Option("--from", metavar="LOCATION", help="A folder or URL whose files to mix.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Write a config with comments to start from."""
    del json, debug
    from mixer.cli.starting import write_config  # noqa: PLC0415 -- see the top

    return write_config(path, source=source, force=force)


@app.command(
    epilog=_example(
        "mixer plan mix.yaml",
        "mixer plan mix.yaml --measure",
        "mixer plan mix.yaml --diff s3://lake/premix/v3",
        "mixer plan mix.yaml --json | jq '.datasets[] | {name, rows_taken, rows_left}'",
    )
)
def plan(
    config: Config,
    *,
    measure: Annotated[
        bool, typer.Option("--measure", help="Mix the first rows for some seconds to tell how long all would take.")
    ] = False,
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff",
            metavar="OLD",
            help="Show only what differs from OLD, a config or the output of a run, and what a resume makes of it.",
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Show exactly what a config gives; nothing is written.

    Only footers are read, and no rows: but for --measure, and for the config's length_column, if it has one.
    """
    del json, debug
    from mixer.cli.answers import show_difference, show_plan  # noqa: PLC0415 -- see the top

    if diff is None:
        return show_plan(config, measured=measure)
    if measure:
        raise typer.BadParameter("--measure and --diff do not go together")
    return show_difference(config, diff)


@app.command(epilog=_example("mixer schema > mix.schema.json"))
def schema(*, json: Json = False, debug: Debug = False) -> Reply:
    """Print the JSON Schema of a config, for editors and other tools."""
    del json, debug
    from mixer.cli.answers import show_schema  # noqa: PLC0415 -- see the top

    return show_schema()


@app.command(epilog=_example("mixer prepare mix.yaml", "mixer prepare mix.yaml --json | jq '.stages[].put_aside'"))
def prepare(
    config: Config,
    *,
    prefect: Annotated[
        bool, typer.Option("--prefect/--no-prefect", help="Prepare in a Prefect flow, or with the bare engine.")
    ] = True,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Make the inputs that cannot be read from anywhere so: JSON, CSV, text, tokens, full shuffles, batches.

    Copies in Parquet are made once, and what is done is never done again. `mixer run` does the same by itself. The
    first Ctrl-C or SIGTERM stops after the part under way, a second one at once; the same command goes on from there.
    """
    del json
    from mixer.cli.preparing import prepare_inputs  # noqa: PLC0415 -- see the top

    return prepare_inputs(config, with_prefect=prefect, quiet=quiet, debug=debug)


@app.command(epilog=_example("mixer run mix.yaml", "mixer run mix.yaml --no-prefect --quiet"))
def run(  # noqa: PLR0913 -- one for each option
    config: Config,
    *,
    extend: Annotated[
        bool,
        typer.Option("--extend", help="If the config makes the run longer, extend it; nothing that is there changes."),
    ] = False,
    allow_repack: Annotated[
        bool,
        typer.Option("--allow-repack", help="Go on under another pyarrow or codec: the same rows in other bytes."),
    ] = False,
    accept_unsafe_store: Annotated[
        bool,
        typer.Option(
            "--accept-unsafe-store",
            help="Go on although the output's store has no create-only writes: never run two at once there.",
        ),
    ] = False,
    prefect: Annotated[
        bool, typer.Option("--prefect/--no-prefect", help="Run as a Prefect flow, or the bare engine.")
    ] = True,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Make the mix, or go on with it: what is committed is never made again.

    The first Ctrl-C or SIGTERM stops after the shard under way, a second one at once. Either way, as after a crash,
    the same command goes on from the last committed shard and ends in the same bytes.
    """
    del json
    from mixer.cli.running import Allowed, run_config  # noqa: PLC0415 -- see the top

    allowed = Allowed(repack=allow_repack, unsafe_store=accept_unsafe_store, extend=extend)
    return run_config(config, allowed=allowed, with_prefect=prefect, quiet=quiet, debug=debug)


@app.command(
    epilog=_example(
        "mixer fork s3://lake/premix/v3 --at 40 --output s3://lake/premix/v4",
        "mixer fork s3://lake/premix/v3 --at 40 --output s3://lake/premix/v4 --weight web=1 --weight code=3",
    )
)
def fork(  # noqa: PLR0913 -- one for each option
    run: Annotated[str, typer.Argument(metavar="RUN", help="The output of a run: a folder or a URL.")],
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="The config to write.")] = "fork.yaml",
    *,
    at: Annotated[int, typer.Option("--at", min=1, metavar="SHARD", help="The first shard that is to be another one.")],
    output: Annotated[str, typer.Option("--output", metavar="NEW", help="Where the new run is to be.")],
    weight: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="NAME=N", help="A dataset and its weight from there on; once for each."),
    ] = None,
    batches: Annotated[
        int | None, typer.Option("--batches", min=1, metavar="N", help="How many batches come from there on.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a config that is there.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Write the config of a new run that takes a run's first shards by reference and goes on with other weights.

    The run itself is only read, and stays as it is; `mixer run` with that config starts the new one.
    """
    del json, debug
    from mixer.cli.forking import write_fork  # noqa: PLC0415 -- see the top

    return write_fork(run, path, shards=at, output=output, weights=weight or [], batches=batches, force=force)


@app.command(epilog=_example("mixer status s3://lake/premix/v3"))
def status(output: Output, *, json: Json = False, debug: Debug = False) -> Reply:
    """Show how far a run is, by its commit log."""
    del json, debug
    from mixer.cli.answers import show_status  # noqa: PLC0415 -- see the top

    return show_status(output)


@app.command(epilog=_example("mixer verify s3://lake/premix/v3"))
def verify(output: Output, *, quiet: Quiet = False, json: Json = False, debug: Debug = False) -> Reply:
    """Read all of a run, log and shards, and report every object that is not what it must be."""
    del json, debug
    from mixer.cli.answers import show_verify  # noqa: PLC0415 -- see the top

    return show_verify(output, quiet=quiet)


@app.command(epilog=_example("mixer head s3://lake/premix/v3 -n 20 --batch 4000"))
def head(
    output: Output,
    *,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, max=10_000, metavar="N", help="How many rows.")] = 10,
    batch: Annotated[int, typer.Option("--batch", min=0, metavar="N", help="The batch to begin with.")] = 0,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Show rows of a run and where each comes from; long values are shortened, but whole with --json."""
    del json, debug
    from mixer.cli.answers import show_head  # noqa: PLC0415 -- see the top

    return show_head(output, rows, batch=batch)


@app.command(
    epilog=_example(
        "mixer where s3://lake/premix/v3 --batch 4000 --slot 17",
        "mixer where s3://lake/premix/v3 --dataset web --row 123456",
    )
)
def where(  # noqa: PLR0913 -- one for each option
    output: Output,
    *,
    batch: Annotated[int | None, typer.Option("--batch", min=0, metavar="N", help="A batch; with --slot.")] = None,
    slot: Annotated[int | None, typer.Option("--slot", min=0, metavar="K", help="A place in it, from 0.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="Instead of these, a dataset; with --row.")
    ] = None,
    row: Annotated[
        int | None, typer.Option("--row", min=0, metavar="R", help="A row of it as stored, from 0, over all files.")
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", min=0, metavar="E", help="Only this pass over the dataset, from 0; all if left out."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Show which row of which file stands at a place of the mix, or where a row of a dataset stands in it.

    The plan tells, also of what is not written yet: no shard and no input is read.
    """
    del json, debug
    from mixer.cli.answers import show_where  # noqa: PLC0415 -- see the top

    forwards, backwards = (batch, slot), (dataset, row)
    if not (
        (None not in forwards and (dataset, row, epoch) == (None, None, None))
        or (None not in backwards and forwards == (None, None))
    ):
        raise typer.BadParameter("expected --batch with --slot, or --dataset with --row (and perhaps --epoch)")
    return show_where(output, batch=batch, slot=slot, dataset=dataset, row=row, epoch=epoch)


@app.command(epilog=_example("mixer gc s3://lake/premix/v3", "mixer gc s3://lake/premix/v3 --delete"))
def gc(
    output: Output,
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete what may go; without it nothing is.")] = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Show what killed processes have left in an output, and delete it if asked to.

    Safe at any time, also while a run is at work or starts there. What is not mixer's is shown and never deleted.
    """
    del json, debug
    from mixer.cli.answers import show_gc  # noqa: PLC0415 -- see the top

    return show_gc(output, delete=delete, quiet=quiet)


@app.command(epilog=_example("mixer doctor", "mixer doctor mix.yaml", "mixer doctor s3://lake/premix/v3"))
def doctor(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONFIG_OR_OUTPUT]", help="A config, or where a run is or is to be: looked at as well."
        ),
    ] = None,
    *,
    json: Json = False,
    debug: Debug = False,
) -> Reply:
    """Look at versions, machine, Prefect server and, if given, the output: what is well, what is not, what to do.

    The output's store is tried: small objects are written below .mixer/probe/ and removed, which harms no run.
    """
    del json, debug
    from mixer.cli.doctoring import show_doctor  # noqa: PLC0415 -- see the top

    return show_doctor(target)
