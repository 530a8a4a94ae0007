"""Runs that were never made, for tests of what is said about runs."""

from __future__ import annotations

from flows.artifacts import RunView
from mixer.core.allocation import Allocation
from mixer.core.commits import Commit
from mixer.core.exhaustion import Phase
from mixer.core.passes import Passes
from mixer.core.plan import Plan
from mixer.core.schedule import single


def view_of(
    weights: dict[str, int], *, batch_size: int = 4, batches: int = 12, batches_per_shard: int = 3, output: str = "out"
) -> RunView:
    """Return the view of a run over datasets that are large enough."""
    allocation = Allocation(tuple(weights.values()), batch_size)
    plan = Plan(
        names=tuple(weights),
        passes=tuple(Passes(name, batches * batch_size) for name in weights),
        phases=(Phase(tuple(weights.values()), batches),),
        limits=(batches * batch_size,) * len(weights),
        batch_size=batch_size,
        batches_per_shard=batches_per_shard,
        batches_per_row_group=1,
        schedule=single(allocation, batches=batches),
    )
    return RunView(output, "0" * 64, plan)


def commit_of(view: RunView, index: int) -> Commit:
    """Return a commit as the engine would make it, but for its hashes."""
    shard = view.plan.shard(index)
    return Commit(
        shard=index,
        path=shard.path,
        rows=shard.rows,
        bytes=1000 * shard.rows,
        sha256=f"{index:064x}",
        first_batch=shard.first_batch,
        batches=shard.batches,
        counts={part.dataset: part.rows for part in shard.ranges},
        state=view.plan.state_at(shard.stop_batch),
        prev="0" * 64,
    )
