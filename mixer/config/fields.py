"""The models that make up a config; what each of their fields may be by itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mixer.config.values import (
    MAX_CONTEXT,
    MAX_RUN_ROWS,
    MAX_SHARD_ROWS,
    ColumnName,
    Columns,
    Format,
    Location,
    Missing,
    Model,
    Name,
    Paths,
    Share,
    Sizes,
    Temperature,
    Token,
    Weight,
)


class WindowConfig(Model):
    """Windows over a stream of token ids, as the items of a dataset."""

    context_length: int = Field(
        ge=1, le=MAX_CONTEXT, description="Ids that a trainer sees at once, T; a window holds T + 1 of them."
    )
    stride: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SHARD_ROWS,
        description="Ids from the beginning of one window to that of the next; `context_length` if left out.",
    )
    tokenizer: Location | None = Field(
        default=None,
        description="What encodes the text: a `tokenizer.json`, a `.tiktoken` file of ranks, or `module:function`. "
        "Left out if the dataset holds token ids already.",
    )
    text: ColumnName = Field(
        default="text", description="The column that is encoded, or that holds a list of token ids."
    )
    end_of_text: Token = Field(
        default=None, description="The token, or its id, that closes each document; the tokenizer's own if left out."
    )
    pattern: str | None = Field(
        default=None, description="Of a `.tiktoken` file: the name of a known encoding, or the regular expression."
    )
    vocabulary: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SHARD_ROWS,
        description="Of a function, or of token ids that are there already: one more than the greatest id.",
    )
    version: str | None = Field(
        default=None,
        description="Of a function: what tells it apart from what it was before; a hash of its module's file if left "
        "out.",
    )
    pad_id: int | None = Field(
        default=None,
        ge=0,
        le=MAX_SHARD_ROWS,
        description="Id that fills the last window up; it is dropped if left out.",
    )
    store_as: Literal["list", "uint16", "int32"] = Field(
        default="list",
        description="Column type of `input_ids`: a list of int32, or binary values of little-endian uint16 or int32.",
    )
    documents: bool = Field(
        default=False,
        description="Whether a column `document_ids` numbers, in each window, the documents in it from 0.",
    )


class BatchesConfig(Model):
    """Batches of equally long rows, as the items of a dataset."""

    by: ColumnName = Field(
        description="The column that goes by: the length of its lists or texts, or its whole numbers."
    )
    size: int = Field(ge=1, le=MAX_SHARD_ROWS, description="Rows in a batch.")
    sizes: Sizes = Field(
        default={},
        description="Other sizes for longer rows: each holds from its length upward, until the next entry.",
    )
    max_length: int | None = Field(default=None, ge=1, le=MAX_SHARD_ROWS, description="Longer rows are left out.")
    include_partial: bool = Field(
        default=False, description="Whether rows that fill no batch make a shorter one, for each length."
    )


class DatasetConfig(Model):
    """A named dataset: where its rows are, how many of them go into each batch, and in which order."""

    path: Paths = Field(
        description="A file, a glob, a folder, or a list of these: a local path or any URL that fsspec opens.",
    )
    format: Format | None = Field(
        default=None, description="What kind of files these are; told by their names if left out."
    )
    on_bad_line: Literal["error", "skip", "quarantine"] | None = Field(
        default=None,
        description="What if a line or record is not what its format says: an `error` (the default), `skip` it and "
        "count it, or `quarantine` it in a file beside the prepared rows. Not for Parquet.",
    )
    document: Literal["file", "line", "paragraph"] | None = Field(
        default=None, description="Of plain text: what becomes a row, a `line` if left out."
    )
    window: WindowConfig | None = Field(
        default=None, description="Items are windows of token ids over all documents, instead of rows."
    )
    batches: BatchesConfig | None = Field(
        default=None, description="Items are batches of equally long rows, instead of rows."
    )
    weight: Weight | None = Field(
        default=None,
        description="This dataset's share of every batch, in proportion to the other weights: a positive whole number.",
    )
    share: Share | None = Field(
        default=None,
        description="Instead of a weight: a percentage such as `12.5%` or a fraction such as `1/3`, taken exactly. The "
        "shares of all datasets make 100 %.",
    )
    shuffle: Literal["block", "full"] | None = Field(
        default=None,
        description="Order of the rows: as stored if left out; `block` takes blocks of whole row groups in a random "
        "order, and the rows of each block in a random order; `full` takes all rows in a random order, from a copy.",
    )
    columns: Columns = Field(
        default=None,
        description="Columns to take, and no others: a list of names, or a mapping from each stored name to its name "
        "in the run, or to a `name` and a `cast`. All columns if left out.",
    )
    max_rows: int | None = Field(
        default=None, ge=1, le=MAX_RUN_ROWS, description="Most rows to take of this dataset, in all passes together."
    )
    max_epochs: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="With `on_exhausted: repeat`: how often the dataset may be gone through; any number if left out.",
    )


class PhaseConfig(Model):
    """A stretch of the run with weights of its own."""

    batches: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="Batches of this phase. The last phase may leave it out where the data ends the run.",
    )
    weights: dict[str, Weight] = Field(
        min_length=1, description="Weight of each dataset that takes part, by its name; the others rest."
    )


class WeightsBy(Model):
    """Weights that follow from sizes."""

    sizes: Literal["rows", "bytes"] | dict[str, Annotated[int, Field(ge=1)]] = Field(
        default="rows",
        description="What the weights go by: the `rows` or `bytes` that each dataset holds, or a number for each.",
    )
    temperature: Temperature = Field(
        default="1", description="Weights are sizes to the power of 1/temperature: 1 keeps sizes, more evens them out."
    )
    max_share: Share | None = Field(
        default=None, description="Most that one dataset gets, such as `40%`; what it loses goes to the others."
    )


class ForkConfig(Model):
    """The run that a mix goes on from, and where."""

    run: Location = Field(description="Output of a run: a folder or URL prefix.")
    shards: int = Field(
        ge=1, le=MAX_RUN_ROWS, description="How many of its shards are the beginning of this mix, as they are there."
    )


class MixFields(Model):
    """The fields of a mix, each right by itself."""

    output: Location = Field(description="Folder or URL prefix that the shards and the commit log are written to.")
    prepared: Location | None = Field(
        default=None,
        description="Folder or URL prefix for prepared copies of inputs that cannot be read from anywhere; runs that "
        "share it prepare once. Below the output if left out.",
    )
    batch_size: int = Field(ge=1, le=MAX_SHARD_ROWS, description="Rows in every batch.")
    batches: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="Batches of the whole run. With `on_exhausted: stop` or `redistribute` it may be left out, and is "
        "at most so many.",
    )
    rows: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_ROWS,
        description="Rows of the whole run, instead of `batches`: a multiple of `batch_size`.",
    )
    batches_per_shard: int = Field(
        ge=1, le=MAX_SHARD_ROWS, description="Batches in every Parquet file; the position is committed after each."
    )
    on_exhausted: Literal["error", "stop", "repeat", "redistribute"] = Field(
        default="error",
        description="What if a dataset has fewer rows than the batches take: `error` before anything is written, "
        "`stop` after the last batch that every dataset can fill, `repeat` it from its beginning, or `redistribute` "
        "its share among the others until all rows are used.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**63 - 1,
        description="What random orders depend on; pass number k of a dataset has seed + k.",
    )
    phases: list[PhaseConfig] | None = Field(
        default=None,
        min_length=1,
        description="Instead of weights and `batches`: stretches of the run, one after the other, each with weights of "
        "its own. Datasets go on where they were.",
    )
    weights_by: WeightsBy | None = Field(
        default=None, description="Instead of weights: let them follow from the sizes of the datasets."
    )
    fork: ForkConfig | None = Field(
        default=None,
        description="The mix begins with the first shards of another run, which are taken by reference: `run` is its "
        "output, `shards` is how many. What the mix says of these batches must be what that run says of them.",
    )
    missing: Missing = Field(
        default="error",
        description="What if a dataset, or one of its files, lacks a column that others have: an `error`, or `null` in "
        "every row of it.",
    )
    lineage: bool = Field(
        default=True, description="Whether columns say of each row its dataset, its place there and its batch."
    )
    compression: Literal["zstd", "snappy", "lz4", "none"] = Field(
        default="zstd", description="Codec of the Parquet files."
    )
    compression_level: int | None = Field(
        default=None, ge=1, le=22, description="Level of zstd, 1 (the default) to 22; other codecs have none."
    )
    batches_per_row_group: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SHARD_ROWS,
        description="Batches in a row group, at most `batches_per_shard`; chosen by size if left out.",
    )
    length_column: ColumnName | None = Field(
        default=None,
        description="For `mixer plan` only: the column that says how many tokens a row has, a whole number or a list. "
        "The plan then counts in tokens, too.",
    )
    datasets: dict[Name, DatasetConfig] = Field(
        min_length=1,
        description="The datasets by name. Their order matters: rows stand in it inside a batch, and it breaks ties.",
    )
